"""What the case files share: servers started on demand, the loop over cases."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "http"))

from harness import Server  # noqa: E402

BUILD = pathlib.Path(sys.argv[1])
KEY = "client-secret"
SERVERS = {}


class Skip(Exception):
    pass


def server(name):
    if name not in SERVERS:
        binary = BUILD / "bin/mlxcel-server"
        if name == "scripted":
            folder = pathlib.Path(tempfile.mkdtemp(prefix="mlxcel-clients-")) / "scripted"
            subprocess.run([BUILD / "tests/make_scripted_model", folder], check=True, capture_output=True)
            config = json.loads((folder / "config.json").read_text())
            config["max_position_embeddings"] = 8192  # room for tools in the prompt
            (folder / "config.json").write_text(json.dumps(config))
            SERVERS[name] = Server(binary, folder, "--api-key", KEY)
        else:
            model = os.environ.get({"real": "MLXCEL_TEST_MODEL", "embed": "MLXCEL_TEST_EMBED_MODEL"}[name])
            if not model:
                store = os.environ.get("MLXCEL_MODELS_DIR") or pathlib.Path(
                    os.environ.get("MLXCEL_CACHE_DIR") or pathlib.Path.home() / ".cache/mlxcel") / "models"
                pattern = {"real": "HuggingFaceTB/SmolLM2-135M-Instruct/*.gguf", "embed": "sentence-transformers/all-MiniLM-L6-v2"}[name]
                found = sorted(pathlib.Path(store).glob(pattern))
                model = found[0] if found else None
            if not model:
                raise Skip(f"no {name} model")
            size = [] if name == "embed" else ["--parallel", "8", "-c", "8192"]
            SERVERS[name] = Server(binary, model, "--api-key", KEY, *size)
    return SERVERS[name]


def address(name):
    return f"http://127.0.0.1:{server(name).port}"


def run(namespace):
    passed = failed = skipped = 0
    for name, body in [(n, f) for n, f in namespace.items() if n.startswith("case_")]:
        try:
            body()
            passed += 1
        except Skip as reason:
            skipped += 1
            print(f"SKIPPED {name}: {reason}")
        except Exception as error:
            failed += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            cause = f" from {error.__cause__!r}" if error.__cause__ else ""
            print(f"FAILED {name}: {type(error).__name__}: {error}{cause} ({pathlib.Path(where.filename).name}:{where.lineno})")
            for kind, one in SERVERS.items():
                if not one.alive():
                    print(f"  the {kind} server has ended with {one.process.returncode}: {(one.output() + one.errors())[-1500:]}")
    for one in SERVERS.values():
        failed += one.stop() != 0
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else 0)
