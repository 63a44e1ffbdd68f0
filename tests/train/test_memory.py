"""Memory kept between epochs: asked for once, given back at the end, and left alone where it is no business of ours."""

import pytest

from gfgn.train import memory


class Library:
    """A C library that writes down what it was told."""

    def __init__(self) -> None:
        self.options: dict[int, int] = {}
        self.calls = self.trims = 0

    def mallopt(self, option: int, value: int) -> int:
        self.options[option] = value
        self.calls += 1
        return 1

    def malloc_trim(self, pad: int) -> int:
        self.trims += 1
        return 1


def test_kept_inside_and_given_back_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    monkeypatch.setattr(memory, "_glibc", lambda: library)

    def interrupted() -> None:
        with memory.kept_memory("cpu"):
            assert library.options == memory.KEEPING
            with memory.kept_memory("cpu"):
                pass
            assert (library.options, library.trims) == (memory.KEEPING, 0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (library.options, library.trims) == (memory.USUAL, 1)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_left_alone_elsewhere(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    monkeypatch.setattr(memory, "_glibc", lambda: None if device == "cpu" else library)
    with memory.kept_memory(device):
        pass
    assert library.calls == library.trims == 0


def test_the_options_are_taken() -> None:
    library = memory._glibc()
    if library is None:
        pytest.skip("another C library")
    with memory.kept_memory("cpu"):
        assert all(library.mallopt(option, value) == 1 for option, value in memory.KEEPING.items())
