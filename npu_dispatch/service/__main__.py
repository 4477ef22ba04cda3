"""`npu-dispatch serve` without torch: python -m npu_dispatch.service."""

from npu_dispatch.service.command import serve

if __name__ == "__main__":
    serve(prog_name="npu-dispatch serve")
