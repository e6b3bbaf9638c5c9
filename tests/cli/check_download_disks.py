"""`download` onto disks that are full, read-only or gone."""
import shutil
import subprocess

from harness import Disk
from hub import REPO, Hub, content, partials, repository, store_of


def check_full_disk_and_read_only_store(context):
    files = repository(**{"model.safetensors": content(3 << 20)})
    with Disk(context, "small", "2m") as disk, Hub(files) as hub:
        env = {"HF_ENDPOINT": hub.url, "MLXCEL_MODELS_DIR": str(disk.path)}
        out = context.fails(1, "download", REPO, env=env)
        assert "free" in out.err and str(disk.path) in out.err, out
        disk.remount("ro")
        out = context.fails(1, "download", REPO, env=env)
        assert str(disk.path) in out.err and "ead-only" in out.err, out
        disk.remount("rw,size=16m")
        context.ok("download", REPO, env=env)


def check_disk_that_fills_up_on_the_way(context):
    files = repository(**{"model.safetensors": content(12 << 20)})
    with Disk(context, "filling", "40m") as disk, Hub(files) as hub:
        other = disk.path / "other"

        def fill(name, sent):
            if name == "model.safetensors" and sent > (4 << 20) and not other.exists():
                with open(other, "wb", buffering=0) as file:
                    try:
                        while file.write(bytes(1 << 20)):
                            pass
                    except OSError:
                        pass

        hub.delay = fill
        env = {"HF_ENDPOINT": hub.url, "MLXCEL_MODELS_DIR": str(disk.path)}
        out = context.fails(1, "download", REPO, env=env)
        assert "No space left" in out.err and "what is there is kept" in out.err, out
        assert not (disk.path / REPO / "model.safetensors").exists() and partials(disk.path), "nothing half-done under its own name"
        kept = partials(disk.path)[0].stat().st_size
        assert kept >= 4 << 20, kept
        other.unlink()
        hub.delay = None
        context.ok("download", REPO, env=env)
        assert (disk.path / REPO / "model.safetensors").read_bytes() == files[REPO]["model.safetensors"]
        assert hub.bodies("model.safetensors")[-1][2]["Range"] == f"bytes={kept}-" and not partials(disk.path)


def check_unplugged_disk(context):
    files = repository(**{"model.safetensors": content(12 << 20)})
    with Disk(context, "stick", "40m") as disk, Hub(files) as hub:
        env = {"MLXCEL_MODELS_DIR": str(disk.path), "HF_ENDPOINT": hub.url}
        gone = []

        def pull(name, sent):
            if name == "model.safetensors" and sent > (4 << 20) and not gone:
                gone.append(sent)
                disk.pull()

        hub.delay = pull
        out = context.fails(1, "download", REPO, env=env)
        assert gone and str(disk.path) in out.err and "cannot be" in out.err, out
        assert not list(disk.path.rglob("model.safetensors")), "nothing is written where the disk was"
        shutil.rmtree(disk.path / "acme", ignore_errors=True)
        assert disk.plug() == 0  # another one is plugged in
        context.ok("download", REPO, env=env)
        assert (disk.path / REPO / "model.safetensors").read_bytes() == files[REPO]["model.safetensors"]


def check_files_larger_than_the_process_may_write(context):
    env, folder = store_of(context, "d18")
    files = repository(**{"model.safetensors": content(4 << 20)})
    with Hub(files) as hub:
        env["HF_ENDPOINT"] = hub.url
        limited = subprocess.run(["bash", "-c", f"ulimit -f 1024; exec {context.mlxcel} download {REPO}"],
                                 env=dict(context.environment, **env), capture_output=True, text=True)
        assert limited.returncode == 1 and "File too large" in limited.stderr and str(folder) in limited.stderr, limited
        kept = partials(folder)[0].stat().st_size
        assert kept == 1 << 20 and not (folder / "model.safetensors").exists()
        context.ok("download", REPO, env=env)
        assert (folder / "model.safetensors").read_bytes() == files[REPO]["model.safetensors"]
        assert hub.bodies("model.safetensors")[-1][2]["Range"] == f"bytes={kept}-" and not partials(folder)
