"""Where the Triton kernels are tested: on a GPU if there is one, else by Triton's interpreter on the CPU.

Import this before anything that imports Triton.
"""

import os

import pytest
import torch

ON_GPU = torch.cuda.is_available()
if not ON_GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when it is imported

triton = pytest.importorskip("triton")
if not ON_GPU and isinstance(triton.language.randn4x, triton.runtime.JITFunction):
    pytest.skip("Triton was imported before its interpreter was asked for", allow_module_level=True)

DEVICE = torch.device("cuda" if ON_GPU else "cpu")
MARKS = [pytest.mark.gpu] if ON_GPU else []
