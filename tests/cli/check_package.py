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
    if shutil.which("systemd-analyze"):
        path = context.folder / "mlxcel.service"
        path.write_text(unit)
        found = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True).stderr
        # Its manual is not in this machine's path; nothing else is amiss.
        assert not [line for line in found.splitlines() if "mlxcel" in line and "Command 'man" not in line], found
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


def check_debian_package(context):
    for tool in ("cpack", "dpkg-deb", "dpkg-shlibdeps"):
        if not shutil.which(tool):
            raise Skip(f"{tool} is not installed")
    if "MLXCEL_SANITIZE:STRING=\n" not in (context.build / "CMakeCache.txt").read_text():
        raise Skip("a sanitized build is not what one installs")
    folder = context.folder / "packages"
    subprocess.run(["cpack", "--config", context.build / "CPackConfig.cmake", "-G", "DEB", "-B", folder, "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=none"],
                   check=True, capture_output=True, cwd=context.build)
    package, = folder.glob("*.deb")
    fields = dict(line.split(": ", 1) for line in subprocess.run(["dpkg-deb", "--field", package], check=True, capture_output=True,
                                                                 text=True).stdout.splitlines() if line[:1] not in " ")
    assert fields["Package"] == "mlxcel" and fields["Version"] == context.ok("--version").out.split()[1], fields
    for library in ("libc6", "libcurl4", "libedit2", "libfmt9", "libssl3", "libstdc++6", "libyaml-cpp0.7"):
        assert library in fields["Depends"], fields
    assert not any(name in fields["Depends"] for name in ("openblas", "lapack", "libmlx")), "these come along"
    root = folder / "root"
    subprocess.run(["dpkg-deb", "--raw-extract", package, root], check=True)
    assert (root / "DEBIAN/conffiles").read_text() == "/etc/default/mlxcel\n" and (root / "etc/default/mlxcel").exists()
    for path in root.rglob("*"):
        mode = path.lstat().st_mode & 0o777
        assert path.is_symlink() or mode in (0o755, 0o644), f"{path}: {mode:o}"
        assert path.is_dir() or path.relative_to(root).parts[0] in ("DEBIAN", "etc", "usr"), path
    env = {"PATH": "/usr/bin:/bin", "HOME": str(context.folder / "home")}
    done = subprocess.run([root / "usr/bin/mlxcel", "run", "-m", context.tiny(), "-p", "abc", "-n", "2"], env=env, capture_output=True)
    assert done.returncode == 0 and done.stdout, done
    assert b"not stripped" not in subprocess.run(["file", root / "usr/bin/mlxcel"], capture_output=True).stdout if shutil.which("file") else True
    shutil.rmtree(folder)
