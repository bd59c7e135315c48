"""The table of GPU models: product names as nodes have them, and rows that can be trusted."""

from __future__ import annotations

import pytest

from bursar.objects.gpu_models import GPU_RESOURCES, UNKNOWN_MODEL, known_models, model_capacity

# As GPU feature discovery, AMD's node labeller and Intel's NFD rules write them.
PRODUCTS = {
    "NVIDIA-A10": "A10",
    "NVIDIA-A10G": "A10G",
    "NVIDIA-A100-SXM4-40GB": "A100 40GB",
    "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb": "A100 80GB",
    "NVIDIA-A800-SXM4-80GB": "A800 80GB",
    "NVIDIA-B200": "B200",
    "NVIDIA-GB200": "GB200",
    "NVIDIA-GH200-480GB": "GH200 480GB",
    "NVIDIA-H20": "H20",
    "NVIDIA-H100-80GB-HBM3": "H100",
    "NVIDIA-H100-PCIe": "H100 PCIe",
    "NVIDIA-H100-NVL": "H100 NVL",
    "NVIDIA-H200-SHARED": "H200",
    "NVIDIA-H800": "H800",
    "NVIDIA-L20": "L20",
    "NVIDIA-L40S": "L40S",
    "NVIDIA-RTX-A6000": "RTX A6000",
    "NVIDIA-RTX-6000-Ada-Generation": "RTX 6000 Ada",
    "NVIDIA-GeForce-RTX-4090": "RTX 4090",
    "NVIDIA-GeForce-RTX-4090-D": "RTX 4090 D",
    "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition": "RTX PRO 6000",
    "Tesla-T4": "T4",
    "Tesla-V100-PCIE-16GB": "V100 PCIe",
    "AMD_Instinct_MI300X_OAM": "MI300X",
    "AMD Instinct MI250X / MI250": "MI250",
    "Max_1550": "Max 1550",
}


@pytest.mark.parametrize(("product", "row"), PRODUCTS.items())
def test_products_are_found_by_the_words_of_their_names(product: str, row: str) -> None:
    assert model_capacity(product).name == row


@pytest.mark.parametrize("product", ["", "Mystery-9000", "NVIDIA", "NVIDIA-H1000", "RTX-6000"])
def test_other_names_are_unknown(product: str) -> None:
    assert model_capacity(product) == UNKNOWN_MODEL


def test_each_row_has_tflops_and_a_source() -> None:
    names = [model.name for model in known_models()]
    assert len(names) == len(set(names)) > 50
    assert [model.name for model in known_models() if not (model.tflops > 0 and model.source)] == []


@pytest.mark.parametrize(
    ("at", "labels", "product", "memory"),
    [
        (0, {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.memory": "15360"}, "Tesla-T4", 15360 << 20),
        (0, {"nvidia.com/gpu.memory": "-1"}, "", 0),
        (0, {"nvidia.com/gpu.memory": "1" * 13}, "", 0),
        (1, {"amd.com/gpu.product-name": "X", "amd.com/gpu.vram": "192G"}, "X", 192 << 30),
        (2, {"gpu.intel.com/product": "Max_1550"}, "Max_1550", 0),
    ],
)
def test_labels_of_nodes(at: int, labels: dict[str, str], product: str, memory: int) -> None:
    resource = GPU_RESOURCES[at]
    assert (resource.product_of(labels), resource.memory_of(labels)) == (product, memory)
