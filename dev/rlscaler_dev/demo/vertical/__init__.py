"""Three kinds of services whose pods are resized in place: replicas alone, the VPA's sizes, and rlscaler's."""
