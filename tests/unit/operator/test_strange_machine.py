"""A pod as OpenShift runs it: a user ID that nobody has, no home folder, and a disk that takes nothing."""

import os
import subprocess
import sys

import pytest

STARTS = """
import functools, getpass, pwd, tempfile

def nobody(*_):
    raise KeyError("getpwuid(): uid not found: 1000680000")

pwd.getpwuid = nobody
tempfile.tempdir = "/nonexistent"
import asyncio
import kopf
from rlscaler_operator.run import context, main
from rlscaler_operator.settings import Settings

asked = []

def operator(**settings):
    # Only a name that is passed keeps kopf from asking for the user's.
    asked.append(settings.get("identity") or getpass.getuser())
    return asyncio.sleep(0)

import contextlib
from kubernetes.aio.client import Configuration

@contextlib.asynccontextmanager
async def running(settings):
    kube = context.Kube(Configuration(host="http://127.0.0.1:9"))
    yield context.Context(settings, kube)
    await kube.close()

functools.update_wrapper(operator, kopf.operator)
main.running, kopf.operator = running, operator
asyncio.run(main.run(Settings(identity="pod-1")))
print(asked)
"""


@pytest.mark.slow
def test_an_operator_starts_as_a_user_that_nobody_knows_without_home_and_disk():
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("HOME", "USER", "LOGNAME", "LNAME", "USERNAME")
    }
    done = subprocess.run(
        [sys.executable, "-c", STARTS], env=kept, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "['pod-1']"), done.stderr
