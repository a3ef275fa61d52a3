"""Standard imports that registries do not store: `google/protobuf`, `google/type` and `confluent/type`.

Comments and options are removed. `values` and `nested_text` define the columns for their messages.

Source: Protobuf 35; googleapis-common-protos 1.76; Confluent Schema Registry 8.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_FILES: Final = """
google/protobuf/any.proto
  message Any { string type_url = 1; bytes value = 2; }

google/protobuf/source_context.proto
  message SourceContext { string file_name = 1; }

google/protobuf/type.proto
  import "google/protobuf/any.proto";
  import "google/protobuf/source_context.proto";
  enum Syntax { SYNTAX_PROTO2 = 0; SYNTAX_PROTO3 = 1; SYNTAX_EDITIONS = 2; }
  message Type { string name = 1; repeated Field fields = 2; repeated string oneofs = 3; repeated Option
    options = 4; SourceContext source_context = 5; Syntax syntax = 6; string edition = 7; }
  message Field { enum Kind { TYPE_UNKNOWN = 0; TYPE_DOUBLE = 1; TYPE_FLOAT = 2; TYPE_INT64 = 3; TYPE_UINT64 =
    4; TYPE_INT32 = 5; TYPE_FIXED64 = 6; TYPE_FIXED32 = 7; TYPE_BOOL = 8; TYPE_STRING = 9; TYPE_GROUP = 10;
    TYPE_MESSAGE = 11; TYPE_BYTES = 12; TYPE_UINT32 = 13; TYPE_ENUM = 14; TYPE_SFIXED32 = 15; TYPE_SFIXED64 =
    16; TYPE_SINT32 = 17; TYPE_SINT64 = 18; } enum Cardinality { CARDINALITY_UNKNOWN = 0; CARDINALITY_OPTIONAL
    = 1; CARDINALITY_REQUIRED = 2; CARDINALITY_REPEATED = 3; } Field.Kind kind = 1; Field.Cardinality
    cardinality = 2; int32 number = 3; string name = 4; string type_url = 6; int32 oneof_index = 7; bool
    packed = 8; repeated Option options = 9; string json_name = 10; string default_value = 11; }
  message Enum { string name = 1; repeated EnumValue enumvalue = 2; repeated Option options = 3; SourceContext
    source_context = 4; Syntax syntax = 5; string edition = 6; }
  message EnumValue { string name = 1; int32 number = 2; repeated Option options = 3; }
  message Option { string name = 1; Any value = 2; }

google/protobuf/api.proto
  import "google/protobuf/source_context.proto";
  import "google/protobuf/type.proto";
  message Api { string name = 1; repeated Method methods = 2; repeated Option options = 3; string version = 4;
    SourceContext source_context = 5; repeated Mixin mixins = 6; Syntax syntax = 7; string edition = 8; }
  message Method { string name = 1; string request_type_url = 2; bool request_streaming = 3; string
    response_type_url = 4; bool response_streaming = 5; repeated Option options = 6; Syntax syntax = 7; string
    edition = 8; }
  message Mixin { string name = 1; string root = 2; }

google/protobuf/duration.proto
  message Duration { int64 seconds = 1; int32 nanos = 2; }

google/protobuf/empty.proto
  message Empty { }

google/protobuf/field_mask.proto
  message FieldMask { repeated string paths = 1; }

google/protobuf/struct.proto
  enum NullValue { NULL_VALUE = 0; }
  message Struct { map<string, Value> fields = 1; }
  message Value { oneof kind { NullValue null_value = 1; double number_value = 2; string string_value = 3;
    bool bool_value = 4; Struct struct_value = 5; ListValue list_value = 6; } }
  message ListValue { repeated Value values = 1; }

google/protobuf/timestamp.proto
  message Timestamp { int64 seconds = 1; int32 nanos = 2; }

google/protobuf/wrappers.proto
  message DoubleValue { double value = 1; }
  message FloatValue { float value = 1; }
  message Int64Value { int64 value = 1; }
  message UInt64Value { uint64 value = 1; }
  message Int32Value { int32 value = 1; }
  message UInt32Value { uint32 value = 1; }
  message BoolValue { bool value = 1; }
  message StringValue { string value = 1; }
  message BytesValue { bytes value = 1; }

google/type/calendar_period.proto
  enum CalendarPeriod { CALENDAR_PERIOD_UNSPECIFIED = 0; DAY = 1; WEEK = 2; FORTNIGHT = 3; MONTH = 4; QUARTER
    = 5; HALF = 6; YEAR = 7; }

google/type/color.proto
  import "google/protobuf/wrappers.proto";
  message Color { float red = 1; float green = 2; float blue = 3; google.protobuf.FloatValue alpha = 4; }

google/type/date.proto
  message Date { int32 year = 1; int32 month = 2; int32 day = 3; }

google/type/datetime.proto
  import "google/protobuf/duration.proto";
  message DateTime { int32 year = 1; int32 month = 2; int32 day = 3; int32 hours = 4; int32 minutes = 5; int32
    seconds = 6; int32 nanos = 7; oneof time_offset { google.protobuf.Duration utc_offset = 8; TimeZone
    time_zone = 9; } }
  message TimeZone { string id = 1; string version = 2; }

google/type/dayofweek.proto
  enum DayOfWeek { DAY_OF_WEEK_UNSPECIFIED = 0; MONDAY = 1; TUESDAY = 2; WEDNESDAY = 3; THURSDAY = 4; FRIDAY =
    5; SATURDAY = 6; SUNDAY = 7; }

google/type/decimal.proto
  message Decimal { string value = 1; }

google/type/expr.proto
  message Expr { string expression = 1; string title = 2; string description = 3; string location = 4; }

google/type/fraction.proto
  message Fraction { int64 numerator = 1; int64 denominator = 2; }

google/type/interval.proto
  import "google/protobuf/timestamp.proto";
  message Interval { google.protobuf.Timestamp start_time = 1; google.protobuf.Timestamp end_time = 2; }

google/type/latlng.proto
  message LatLng { double latitude = 1; double longitude = 2; }

google/type/localized_text.proto
  message LocalizedText { string text = 1; string language_code = 2; }

google/type/money.proto
  message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }

google/type/month.proto
  enum Month { MONTH_UNSPECIFIED = 0; JANUARY = 1; FEBRUARY = 2; MARCH = 3; APRIL = 4; MAY = 5; JUNE = 6; JULY
    = 7; AUGUST = 8; SEPTEMBER = 9; OCTOBER = 10; NOVEMBER = 11; DECEMBER = 12; }

google/type/phone_number.proto
  message PhoneNumber { message ShortCode { string region_code = 1; string number = 2; } oneof kind { string
    e164_number = 1; PhoneNumber.ShortCode short_code = 2; } string extension = 3; }

google/type/postal_address.proto
  message PostalAddress { int32 revision = 1; string region_code = 2; string language_code = 3; string
    postal_code = 4; string sorting_code = 5; string administrative_area = 6; string locality = 7; string
    sublocality = 8; repeated string address_lines = 9; repeated string recipients = 10; string organization =
    11; }

google/type/quaternion.proto
  message Quaternion { double x = 1; double y = 2; double z = 3; double w = 4; }

google/type/timeofday.proto
  message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }

confluent/type/decimal.proto
  message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
"""
"""The name of each file, followed by its content. Its package is its directory."""


def _texts() -> Iterator[tuple[str, str]]:
    for part in _FILES.strip().split("\n\n"):
        name, _, text = part.partition("\n")
        package = name.rpartition("/")[0].replace("/", ".")
        yield name, f'syntax = "proto3"; package {package}; {text}'


WELL_KNOWN: Final = dict(_texts())
"""Text by file name."""
