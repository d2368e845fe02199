"""A fused function gives what the plain one gives: on any device, and where no compiler works."""

import warnings

import pytest
import torch

from exhume.core import fusing
from exhume.core.fusing import fused


def squared_distance(one, other, weight):
    return weight * (one - other).square().sum()


ARGUMENTS = (torch.arange(3.0), torch.ones(3), 2.0)


class OnGpu(torch.Tensor):
    """A tensor that says that it is on a GPU."""

    is_cuda = True


def test_functions_on_a_cpu_are_called_as_they_are(monkeypatch):
    monkeypatch.setattr(fusing.torch, "compile", lambda *_, **__: pytest.fail("compiled"))
    assert torch.equal(fused(squared_distance)(*ARGUMENTS), squared_distance(*ARGUMENTS))


def test_the_name_and_the_docstring_are_kept():
    assert fused(squared_distance).__name__ == "squared_distance"


def test_on_a_gpu_the_compiled_function_is_called_and_compiled_once(monkeypatch):
    compiled = []

    def compile(function, **options):
        compiled.append(options)
        return function

    monkeypatch.setattr(fusing.torch, "compile", compile)
    function = fused(squared_distance)
    on_gpu = (ARGUMENTS[0].as_subclass(OnGpu), *ARGUMENTS[1:])
    assert float(function(*on_gpu)) == float(function(*on_gpu)) == float(squared_distance(*ARGUMENTS))
    assert compiled == [{"dynamic": True}]


def test_without_a_working_compiler_it_warns_once_and_gives_the_same(monkeypatch):
    def compile(function, **options):
        def fail(*arguments):
            raise RuntimeError("no C compiler")

        return fail

    monkeypatch.setattr(fusing.torch, "compile", compile)
    function = fused(squared_distance)
    on_gpu = (ARGUMENTS[0].as_subclass(OnGpu), *ARGUMENTS[1:])
    with pytest.warns(UserWarning, match="squared_distance runs unfused, since torch.compile failed: RuntimeError"):
        first = function(*on_gpu)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = function(*on_gpu)
    assert float(first) == float(second) == float(squared_distance(*ARGUMENTS))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_real_gpu_it_agrees_with_the_plain_function():
    on_gpu = tuple(one.cuda() if isinstance(one, torch.Tensor) else one for one in ARGUMENTS)
    torch.testing.assert_close(fused(squared_distance)(*on_gpu).cpu(), squared_distance(*ARGUMENTS))
