"""Installing: the program finds its MLX wherever the folder is moved, docs and unit are there."""
import os
import shutil
import subprocess

from harness import Skip


def check_installed_folder_can_move(context):
    cache = context.build / "CMakeCache.txt"
    if "MLXCEL_SANITIZE:STRING=\n" not in cache.read_text():
        raise Skip("a sanitized build is not what one installs")
    first, second = context.folder / "prefix", context.folder / "moved here"
    subprocess.run(["cmake", "--install", context.build, "--prefix", first], check=True, capture_output=True)
    unit = (first / "lib/systemd/system/mlxcel.service").read_text()
    assert f"ExecStart={first}/bin/mlxcel-server " in unit and "@" not in unit, unit
    first.rename(second)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(context.folder / "home")}
    for program in ("mlxcel", "mlxcel-server"):
        done = subprocess.run([second / "bin" / program, "--version"], env=env, capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout.startswith("mlxcel "), done
    maps = subprocess.run(["ldd", second / "bin/mlxcel"], env=env, capture_output=True, text=True).stdout
    mlx = [line for line in maps.splitlines() if "libmlx" in line or "blas" in line.lower()]
    assert mlx and all(str(second) in line for line in mlx), maps
    done = subprocess.run([second / "bin/mlxcel", "run", "-m", context.tiny(), "-p", "abc", "-n", "2"], env=env, capture_output=True)
    assert done.returncode == 0, done
    share = second / "share"
    for name in ("man/man1/mlxcel.1", "man/man1/mlxcel-run.1", "bash-completion/completions/mlxcel",
                 "zsh/vendor-completions/_mlxcel", "fish/vendor_completions.d/mlxcel.fish"):
        assert (share / name).stat().st_size > 200, name
    shutil.rmtree(second)
    # As packages do it: the prefix is /usr, whatever the build was configured for.
    staged = context.folder / "staged"
    subprocess.run(["cmake", "--install", context.build, "--prefix", "/usr"], check=True, capture_output=True,
                   env=dict(os.environ, DESTDIR=str(staged)))
    assert "ExecStart=/usr/bin/mlxcel-server " in (staged / "usr/lib/systemd/system/mlxcel.service").read_text()
    assert "MLXCEL_SERVE_FLAGS" in (staged / "etc/default/mlxcel").read_text()
    shutil.rmtree(staged)
