from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Model(_message.Message):
    __slots__ = ("ir_version", "opset_import", "producer_name", "producer_version", "domain", "model_version", "doc_string", "graph", "metadata_props", "training_info", "functions")
    IR_VERSION_FIELD_NUMBER: _ClassVar[int]
    OPSET_IMPORT_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_VERSION_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    DOC_STRING_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    METADATA_PROPS_FIELD_NUMBER: _ClassVar[int]
    TRAINING_INFO_FIELD_NUMBER: _ClassVar[int]
    FUNCTIONS_FIELD_NUMBER: _ClassVar[int]
    ir_version: int
    opset_import: _containers.RepeatedCompositeFieldContainer[OperatorSet]
    producer_name: str
    producer_version: str
    domain: str
    model_version: int
    doc_string: str
    graph: Graph
    metadata_props: _containers.RepeatedScalarFieldContainer[bytes]
    training_info: _containers.RepeatedScalarFieldContainer[bytes]
    functions: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, ir_version: _Optional[int] = ..., opset_import: _Optional[_Iterable[_Union[OperatorSet, _Mapping]]] = ..., producer_name: _Optional[str] = ..., producer_version: _Optional[str] = ..., domain: _Optional[str] = ..., model_version: _Optional[int] = ..., doc_string: _Optional[str] = ..., graph: _Optional[_Union[Graph, _Mapping]] = ..., metadata_props: _Optional[_Iterable[bytes]] = ..., training_info: _Optional[_Iterable[bytes]] = ..., functions: _Optional[_Iterable[bytes]] = ...) -> None: ...

class OperatorSet(_message.Message):
    __slots__ = ("domain", "version")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    domain: str
    version: int
    def __init__(self, domain: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class Graph(_message.Message):
    __slots__ = ("node", "name", "initializer", "sparse_initializer", "doc_string", "input", "output", "value_info", "metadata_props")
    NODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INITIALIZER_FIELD_NUMBER: _ClassVar[int]
    SPARSE_INITIALIZER_FIELD_NUMBER: _ClassVar[int]
    DOC_STRING_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    VALUE_INFO_FIELD_NUMBER: _ClassVar[int]
    METADATA_PROPS_FIELD_NUMBER: _ClassVar[int]
    node: _containers.RepeatedCompositeFieldContainer[Node]
    name: str
    initializer: _containers.RepeatedCompositeFieldContainer[Tensor]
    sparse_initializer: _containers.RepeatedScalarFieldContainer[bytes]
    doc_string: str
    input: _containers.RepeatedCompositeFieldContainer[ValueInfo]
    output: _containers.RepeatedCompositeFieldContainer[ValueInfo]
    value_info: _containers.RepeatedCompositeFieldContainer[ValueInfo]
    metadata_props: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, node: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., name: _Optional[str] = ..., initializer: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., sparse_initializer: _Optional[_Iterable[bytes]] = ..., doc_string: _Optional[str] = ..., input: _Optional[_Iterable[_Union[ValueInfo, _Mapping]]] = ..., output: _Optional[_Iterable[_Union[ValueInfo, _Mapping]]] = ..., value_info: _Optional[_Iterable[_Union[ValueInfo, _Mapping]]] = ..., metadata_props: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("input", "output", "name", "op_type", "domain", "attribute", "doc_string", "metadata_props")
    INPUT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OP_TYPE_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    DOC_STRING_FIELD_NUMBER: _ClassVar[int]
    METADATA_PROPS_FIELD_NUMBER: _ClassVar[int]
    input: _containers.RepeatedScalarFieldContainer[str]
    output: _containers.RepeatedScalarFieldContainer[str]
    name: str
    op_type: str
    domain: str
    attribute: _containers.RepeatedCompositeFieldContainer[Attribute]
    doc_string: str
    metadata_props: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, input: _Optional[_Iterable[str]] = ..., output: _Optional[_Iterable[str]] = ..., name: _Optional[str] = ..., op_type: _Optional[str] = ..., domain: _Optional[str] = ..., attribute: _Optional[_Iterable[_Union[Attribute, _Mapping]]] = ..., doc_string: _Optional[str] = ..., metadata_props: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Attribute(_message.Message):
    __slots__ = ("name", "doc_string", "type", "f", "i", "s", "t", "g", "floats", "ints", "strings", "graphs")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DOC_STRING_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    F_FIELD_NUMBER: _ClassVar[int]
    I_FIELD_NUMBER: _ClassVar[int]
    S_FIELD_NUMBER: _ClassVar[int]
    T_FIELD_NUMBER: _ClassVar[int]
    G_FIELD_NUMBER: _ClassVar[int]
    FLOATS_FIELD_NUMBER: _ClassVar[int]
    INTS_FIELD_NUMBER: _ClassVar[int]
    STRINGS_FIELD_NUMBER: _ClassVar[int]
    GRAPHS_FIELD_NUMBER: _ClassVar[int]
    name: str
    doc_string: str
    type: int
    f: float
    i: int
    s: bytes
    t: Tensor
    g: bytes
    floats: _containers.RepeatedScalarFieldContainer[float]
    ints: _containers.RepeatedScalarFieldContainer[int]
    strings: _containers.RepeatedScalarFieldContainer[bytes]
    graphs: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, name: _Optional[str] = ..., doc_string: _Optional[str] = ..., type: _Optional[int] = ..., f: _Optional[float] = ..., i: _Optional[int] = ..., s: _Optional[bytes] = ..., t: _Optional[_Union[Tensor, _Mapping]] = ..., g: _Optional[bytes] = ..., floats: _Optional[_Iterable[float]] = ..., ints: _Optional[_Iterable[int]] = ..., strings: _Optional[_Iterable[bytes]] = ..., graphs: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Tensor(_message.Message):
    __slots__ = ("dims", "data_type", "float_data", "int32_data", "int64_data", "name", "doc_string", "raw_data", "external_data", "data_location", "double_data", "metadata_props")
    DIMS_FIELD_NUMBER: _ClassVar[int]
    DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    FLOAT_DATA_FIELD_NUMBER: _ClassVar[int]
    INT32_DATA_FIELD_NUMBER: _ClassVar[int]
    INT64_DATA_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DOC_STRING_FIELD_NUMBER: _ClassVar[int]
    RAW_DATA_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_DATA_FIELD_NUMBER: _ClassVar[int]
    DATA_LOCATION_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_DATA_FIELD_NUMBER: _ClassVar[int]
    METADATA_PROPS_FIELD_NUMBER: _ClassVar[int]
    dims: _containers.RepeatedScalarFieldContainer[int]
    data_type: int
    float_data: _containers.RepeatedScalarFieldContainer[float]
    int32_data: _containers.RepeatedScalarFieldContainer[int]
    int64_data: _containers.RepeatedScalarFieldContainer[int]
    name: str
    doc_string: str
    raw_data: bytes
    external_data: _containers.RepeatedScalarFieldContainer[bytes]
    data_location: int
    double_data: _containers.RepeatedScalarFieldContainer[float]
    metadata_props: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, dims: _Optional[_Iterable[int]] = ..., data_type: _Optional[int] = ..., float_data: _Optional[_Iterable[float]] = ..., int32_data: _Optional[_Iterable[int]] = ..., int64_data: _Optional[_Iterable[int]] = ..., name: _Optional[str] = ..., doc_string: _Optional[str] = ..., raw_data: _Optional[bytes] = ..., external_data: _Optional[_Iterable[bytes]] = ..., data_location: _Optional[int] = ..., double_data: _Optional[_Iterable[float]] = ..., metadata_props: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ValueInfo(_message.Message):
    __slots__ = ("name", "type", "doc_string", "metadata_props")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DOC_STRING_FIELD_NUMBER: _ClassVar[int]
    METADATA_PROPS_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: Type
    doc_string: str
    metadata_props: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, name: _Optional[str] = ..., type: _Optional[_Union[Type, _Mapping]] = ..., doc_string: _Optional[str] = ..., metadata_props: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Type(_message.Message):
    __slots__ = ("tensor_type", "denotation")
    TENSOR_TYPE_FIELD_NUMBER: _ClassVar[int]
    DENOTATION_FIELD_NUMBER: _ClassVar[int]
    tensor_type: TensorType
    denotation: str
    def __init__(self, tensor_type: _Optional[_Union[TensorType, _Mapping]] = ..., denotation: _Optional[str] = ...) -> None: ...

class TensorType(_message.Message):
    __slots__ = ("elem_type", "shape")
    ELEM_TYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    elem_type: int
    shape: Shape
    def __init__(self, elem_type: _Optional[int] = ..., shape: _Optional[_Union[Shape, _Mapping]] = ...) -> None: ...

class Shape(_message.Message):
    __slots__ = ("dim",)
    DIM_FIELD_NUMBER: _ClassVar[int]
    dim: _containers.RepeatedCompositeFieldContainer[Dimension]
    def __init__(self, dim: _Optional[_Iterable[_Union[Dimension, _Mapping]]] = ...) -> None: ...

class Dimension(_message.Message):
    __slots__ = ("dim_value", "dim_param", "denotation")
    DIM_VALUE_FIELD_NUMBER: _ClassVar[int]
    DIM_PARAM_FIELD_NUMBER: _ClassVar[int]
    DENOTATION_FIELD_NUMBER: _ClassVar[int]
    dim_value: int
    dim_param: str
    denotation: str
    def __init__(self, dim_value: _Optional[int] = ..., dim_param: _Optional[str] = ..., denotation: _Optional[str] = ...) -> None: ...
