"""Our part of ONNX's format has ONNX's own field numbers and wire types."""

from __future__ import annotations

import onnx
import pytest
from google.protobuf.descriptor import FieldDescriptor

from rlscaler_core.decision import onnx_subset_pb2

OF_ONNX = {
    "Model": onnx.ModelProto,
    "OperatorSet": onnx.OperatorSetIdProto,
    "Graph": onnx.GraphProto,
    "Node": onnx.NodeProto,
    "Attribute": onnx.AttributeProto,
    "Tensor": onnx.TensorProto,
    "ValueInfo": onnx.ValueInfoProto,
    "Type": onnx.TypeProto,
    "TensorType": onnx.TypeProto.Tensor,
    "Shape": onnx.TensorShapeProto,
    "Dimension": onnx.TensorShapeProto.Dimension,
}

SAME_ON_THE_WIRE = {
    (FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_MESSAGE),
    (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_ENUM),
}
"""Types here and there that are written alike."""


@pytest.mark.parametrize("name", OF_ONNX)
def test_fields_are_those_of_onnx(name: str) -> None:
    theirs = OF_ONNX[name].DESCRIPTOR.fields_by_name
    for field in onnx_subset_pb2.DESCRIPTOR.message_types_by_name[name].fields:
        other = theirs[field.name]
        assert field.number == other.number, field.name
        assert field.is_repeated == other.is_repeated, field.name
        assert field.type == other.type or (field.type, other.type) in SAME_ON_THE_WIRE, field.name


def test_every_message_is_compared() -> None:
    assert set(onnx_subset_pb2.DESCRIPTOR.message_types_by_name) == set(OF_ONNX)
