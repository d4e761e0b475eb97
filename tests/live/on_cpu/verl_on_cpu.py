"""The CPU as a platform of verl, through its own registry: what its FSDP actor does can be followed without a GPU."""

from __future__ import annotations

import os
import types

import torch
import torch.distributed
from verl.plugin.platform import set_platform
from verl.plugin.platform.platform_cuda import PlatformCUDA

os.environ["VERL_ENGINE_DEVICE"] = "cuda"  # the engine that is registered for CUDA


class Memory(types.ModuleType):
    """torch.cpu with the memory counters that verl reports."""

    def __getattr__(self, name):
        """Count nothing."""
        if name.startswith(("max_memory", "memory_", "reset_peak")):
            return lambda *_: 0
        return getattr(torch.cpu, name)

    @staticmethod
    def mem_get_info():
        """Return what is free, and what there is."""
        return 1, 1

    @staticmethod
    def get_device_name():
        """Return a name that verl has no peak performance of."""
        return "CPU"

    @staticmethod
    def empty_cache():
        """Do nothing."""

    @staticmethod
    def is_available():
        """Whether the device is there."""
        return True


class OnCpu(PlatformCUDA):
    """CUDA's platform, with the device exchanged."""

    device_name = "cpu"
    device_module = Memory("cpu")

    def is_available(self):
        """The CPU is."""
        return True

    def current_device(self):
        """Return what `.to()` and FSDP take for a device."""
        return torch.device("cpu")

    def communication_backend_name(self):
        """Return the one that needs no GPU."""
        return "gloo"

    def empty_cache(self):
        """Do nothing."""

    def synchronize(self, device_index=None):
        """Do nothing."""


set_platform(OnCpu())
if not torch.distributed.is_initialized():
    torch.distributed.init_process_group("gloo")
