"""The types of keyword arguments that editors complete are those of the signatures and classes they stand for."""

import inspect
import re
from dataclasses import fields

import pytest

import kafkalog
from kafkalog.codec import HeaderFields
from kafkalog.interchange.arrow_input import InputOptions, record_slices
from kafkalog.log.open import OpenOptions
from kafkalog.log.segment_stream import SegmentStream, StreamOptions
from kafkalog.operations.dumping.options import DumpKeywords, DumpOptions
from kafkalog.operations.inspecting import EpochsOptions, ListOptions, LookupOptions, ProducersOptions
from kafkalog.operations.loading.load import LoadKeywords, LoadOptions, WriteKeywords
from kafkalog.operations.verifying.verify import VerifyOptions, iter_verify
from kafkalog.read_methods import ReadMethods
from kafkalog.records.batch_spec import BatchSpec
from kafkalog.scanning.options import FormatOptions, PlaceOfFiles


def keywords(function):
    return {
        name
        for name, one in inspect.signature(function).parameters.items()
        if one.kind is inspect.Parameter.KEYWORD_ONLY
    }


def names(*types):
    return {name for one in types for name in one.__annotations__}


@pytest.mark.parametrize(
    ("typed", "taken"),
    [
        (OpenOptions, keywords(kafkalog.open)),
        (ListOptions, keywords(kafkalog.ls)),
        (LookupOptions, keywords(kafkalog.lookup)),
        (ProducersOptions, keywords(kafkalog.producers)),
        (EpochsOptions, keywords(kafkalog.epochs)),
        (VerifyOptions, keywords(iter_verify) - {"into"} | names(FormatOptions, PlaceOfFiles)),
        (StreamOptions, keywords(SegmentStream)),
        (InputOptions, keywords(record_slices) - {"max_bytes"}),
        (DumpKeywords, {field.name for field in fields(DumpOptions)}),
        (LoadKeywords, {field.name for field in fields(LoadOptions)}),
        (WriteKeywords, {field.name for field in fields(LoadOptions)} - keywords(kafkalog.write_table)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_typed_options_are_those_that_are_taken(typed, taken):
    assert names(typed) == taken


def test_the_help_of_a_function_lists_the_options_of_another_class():
    listed = re.search(r"(?s)The options of `DumpOptions`: (.*?)\.\n", kafkalog.dump.__doc__)[1]
    assert set(re.findall(r"`(\w+)`", listed)) == names(DumpKeywords)


def test_fields_of_headers_are_those_of_batches():
    assert names(HeaderFields) < {field.name for field in fields(BatchSpec)}


def test_no_public_function_takes_options_of_any_type():
    # pandas and pyarrow have no types for theirs
    theirs = {"to_pandas"}
    public = [getattr(kafkalog, name) for name in kafkalog.__all__]
    methods = [
        method
        for one in (*public, ReadMethods)
        if inspect.isclass(one)
        for name, method in inspect.getmembers(one, inspect.isfunction)
        if not name.startswith("_") and name not in theirs and method.__module__.startswith("kafkalog")
    ]
    functions = [one for one in public if inspect.isfunction(one)]
    assert len(functions) > 30
    loose = [
        function.__qualname__
        for function in (*functions, *methods)
        for one in inspect.signature(function).parameters.values()
        if one.kind is inspect.Parameter.VAR_KEYWORD and one.annotation == "Any"
    ]
    assert loose == []
