import pytest

from cavity.files.atomic import atomic_write


def test_a_file_is_replaced_only_once_it_is_whole(tmp_path):
    path = tmp_path / "out.csv"
    path.write_text("before")

    def fails_halfway():
        with atomic_write(path) as temporary:
            temporary.write_text("half")
            raise KeyError

    with pytest.raises(KeyError):
        fails_halfway()
    assert path.read_text() == "before"
    with atomic_write(path) as temporary:
        temporary.write_text("after")
    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]
