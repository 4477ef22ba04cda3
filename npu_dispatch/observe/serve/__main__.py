"""`npu-dispatch serve` without torch: python -m npu_dispatch.observe.serve."""

from npu_dispatch.observe.serve.command import serve

if __name__ == "__main__":
    serve(prog_name="npu-dispatch serve")
