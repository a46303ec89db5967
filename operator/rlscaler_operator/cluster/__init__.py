"""The Kubernetes side: client, watch cache, Leases, referenced objects, Events and the limit on concurrent requests."""

import os
from pathlib import Path

try:
    Path.home()
except RuntimeError:
    # The Kubernetes client asks for the home folder when it is imported. A user ID without an entry in the list of
    # users, as OpenShift assigns them, may have none.
    os.environ["HOME"] = "/"
