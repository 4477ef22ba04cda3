"""transforms.v2, mobilenet_v3_small, IoU of boxes, two losses."""

import torch
import vision_names  # noqa: F401
from torchvision import models, ops
from torchvision.transforms import v2

LIBRARY = "torchvision"
NEEDS = ("numpy",)
APART = ("torchvision", "pillow")


def run(device):
    images = torch.randint(0, 256, (2, 3, 40, 40), dtype=torch.uint8).to(device)
    change = v2.Compose(
        [
            # First: torchvision resizes bytes in another way on each device.
            v2.ToDtype(torch.float32, scale=True),
            v2.Resize((32, 32), antialias=True),
            v2.CenterCrop(24),
            v2.ColorJitter(brightness=(0.8, 0.8), saturation=(1.5, 1.5)),
            v2.Normalize([0.5] * 3, [0.25] * 3),
        ]
    )
    x = change(images)
    corners = torch.rand(12, 2).to(device) * 10
    boxes = torch.cat([corners, corners + 5], 1)
    model = models.mobilenet_v3_small(num_classes=4).to(device).eval()
    with torch.no_grad():
        found = [
            x,
            model(x),
            ops.box_iou(boxes, boxes.flip(0)),
            ops.generalized_box_iou_loss(boxes, boxes.flip(0), reduction="sum"),
            ops.sigmoid_focal_loss(x, (x > 0).float(), reduction="mean"),
        ]
    return [figure for one in found for figure in one.flatten().tolist()]
