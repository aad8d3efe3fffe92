from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp import UsageError
from effectmcp.tasks import holders
from effectmcp.tasks.holders import Holder, check_local, file_system

MOUNTS = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 27 0:40 / /home rw - nfs4 server:/home rw
31 30 8:2 / /home/local\040disk rw master:1 propagate_from:2 - xfs /dev/sdb rw
32 27 0:41 / /mnt/é rw - fuse.sshfs x rw
33 27 0:42 / /twice rw - nfs4 x rw
34 33 0:43 / /twice rw - tmpfs x rw
35 27 0:44 / /line\012break rw - cifs x rw
damaged
36 27 - nfs
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/", "ext4"),
        ("/srv/data", "ext4"),
        ("/homes", "ext4"),
        ("/home", "nfs4"),
        ("/home/ann", "nfs4"),
        ("/home/local disk/x", "xfs"),
        ("/home/local", "nfs4"),
        ("/mnt/é/x", "fuse.sshfs"),
        ("/twice/x", "tmpfs"),
        ("/line\nbreak/x", "cifs"),
    ],
)
def test_file_system_of_the_nearest_mount(folder: str, kind: str) -> None:
    assert file_system(MOUNTS, folder) == kind


@given(st.text(), st.text())
def test_file_system_of_any_string(mounts: str, folder: str) -> None:
    assert isinstance(file_system(mounts, folder), str)


def test_network_file_systems_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_local(tmp_path / "tasks.db")
    monkeypatch.setattr(holders, "file_system", lambda mounts, folder: "nfs4")
    with pytest.raises(UsageError, match=r"network file system \(nfs4\)"):
        check_local(tmp_path / "tasks.db")


def test_systems_without_mountinfo_are_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*args: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    check_local(tmp_path / "tasks.db")


def test_windows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holders, "fcntl", None)
    with pytest.raises(UsageError, match="need the file locks of a Unix system"):
        check_local(tmp_path / "tasks.db")
    Holder(None).close()


def test_holder_lives_until_it_is_closed(tmp_path: Path) -> None:
    one, other = Holder(tmp_path / "t"), Holder(tmp_path / "t")
    assert one.name != other.name
    assert not one.is_dead(other.name)
    other.close()
    other.close()
    assert one.is_dead(other.name)
    assert one.is_dead("0-never")
    one.close()
    assert list((tmp_path / "t-holders").iterdir()) == []


def test_holder_in_memory_has_no_file() -> None:
    one = Holder(None)
    one.close()
    assert one.name


def test_holder_without_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t-holders").write_text("a file")
    with pytest.raises(UsageError, match="no file can be locked"):
        Holder(tmp_path / "t")


HOLD = """
import sys
from pathlib import Path
from effectmcp.tasks.holders import Holder
one = Holder(Path(sys.argv[1]))
print(one.name, flush=True)
sys.stdin.read()
"""


def held(path: Path, code: str = HOLD) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_killed_process_is_dead_and_frozen_process_is_not(
    tmp_path: Path,
) -> None:
    one = Holder(tmp_path / "t")
    process, name = held(tmp_path / "t")
    try:
        assert not one.is_dead(name)
        process.send_signal(signal.SIGSTOP)
        assert not one.is_dead(name)
    finally:
        end(process)
    assert one.is_dead(name)
    assert one.is_dead(name)  # its file is removed
    assert not (tmp_path / "t-holders" / name).exists()
    one.close()


FORK = """
import os, sys
from pathlib import Path
from effectmcp.tasks.holders import Holder
one = Holder(Path(sys.argv[1]))
if os.fork() == 0:
    one.close()  # the file is the parent's
    print(one.name, flush=True)
    sys.stdin.read()
    os._exit(0)
sys.stdin.read()
"""


def test_fork_does_not_keep_its_parent_alive(tmp_path: Path) -> None:
    one = Holder(tmp_path / "t")
    process, name = held(tmp_path / "t", FORK)
    assert process.stdin is not None
    try:
        assert not one.is_dead(name)
        assert (tmp_path / "t-holders" / name).exists()
        process.kill()
        process.wait()
        assert one.is_dead(name)
    finally:
        end(process)
        one.close()


def test_every_holder_leaves_in_a_fork(tmp_path: Path) -> None:
    """Repeat the test above in this process, where coverage is measured."""
    one = Holder(tmp_path / "t")
    copy = os.dup(one._file)
    holders._leave_all()
    assert one._file == -1
    os.close(copy)
    one.leave()
    one.close()


def test_files_of_processes_that_died_without_a_task_are_removed(
    tmp_path: Path,
) -> None:
    one = Holder(tmp_path / "t")
    folder = tmp_path / "t-holders"
    (folder / "0-dead").touch()
    (folder / ".1-begins").touch()
    (folder / "2-odd").mkdir()
    other = Holder(tmp_path / "t")
    assert {path.name for path in folder.iterdir()} == {
        one.name,
        other.name,
        ".1-begins",
        "2-odd",
    }
    one.close()
    other.close()


def test_no_process_is_dead_if_all_files_were_removed(tmp_path: Path) -> None:
    """Two processes would perform the same steps."""
    one, other = Holder(tmp_path / "t"), Holder(tmp_path / "t")
    for path in (tmp_path / "t-holders").iterdir():
        path.unlink()
    assert not one.is_dead(other.name)
    one.close()
    other.close()


def test_other_names_of_a_file_have_the_same_holders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "t")
    monkeypatch.chdir(tmp_path)
    holders_ = [Holder(Path("t")), Holder(tmp_path / "link")]
    monkeypatch.chdir("/")
    for one in holders_:
        for other in holders_:
            assert one is other or not one.is_dead(other.name)
    for one in holders_:
        one.close()
    assert list((tmp_path / "t-holders").iterdir()) == []
