//! Serialisation that refuses what JSON would change without notice.

use serde::ser::{
    Error, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

const NESTED_NULL: &str = "a Some around None, () or null cannot be encoded: it would be read back as None";
const NOT_FINITE: &str = "a number that is not finite cannot be encoded: JSON has neither NaN nor infinity";
const TOO_LARGE: &str = "an integer of more than 64 bits cannot be encoded: send it as text";
const TOO_DEEP: &str =
    "a value that is nested more than 127 levels deep cannot be encoded: JSON of it cannot be read back";

/// How deep values may be nested: what `serde_json` reads.
const DEPTH_MAX: u8 = 127;

/// A value that serialises as before, except that a NaN, an infinity and a `Some` around a null are errors.
pub(crate) struct Checked<'a, T: ?Sized> {
    value: &'a T,
    /// Whether a `Some` is around this value, with nothing between that JSON shows.
    in_some: bool,
    /// How many arrays and objects are around this value.
    depth: u8,
}

impl<'a, T: ?Sized> Checked<'a, T> {
    pub(crate) fn new(value: &'a T) -> Self {
        Self::part(value, 0)
    }

    /// A value inside `depth` arrays and objects.
    fn part(value: &'a T, depth: u8) -> Self {
        Self { value, in_some: false, depth }
    }
}

impl<T: Serialize + ?Sized> Serialize for Checked<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { value, in_some, depth } = *self;
        value.serialize(CheckedSerializer { inner: serializer, in_some, depth })
    }
}

/// Forwards to another serialiser.
struct CheckedSerializer<S> {
    inner: S,
    in_some: bool,
    depth: u8,
}

impl<S: Serializer> CheckedSerializer<S> {
    /// The serialiser for something that JSON shows as null.
    fn for_null(self) -> Result<S, S::Error> {
        if self.in_some { Err(S::Error::custom(NESTED_NULL)) } else { Ok(self.inner) }
    }

    /// The depth of the parts, if `levels` more arrays and objects are around them.
    fn deeper(&self, levels: u8) -> Result<u8, S::Error> {
        let depth = self.depth + levels;
        if depth <= DEPTH_MAX { Ok(depth) } else { Err(S::Error::custom(TOO_DEEP)) }
    }
}

/// Methods that forward their arguments.
macro_rules! forward {
    ($($method:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(
            fn $method(self, $($argument: $type),*) -> Result<$answer, S::Error> {
                self.inner.$method($($argument),*)
            }
        )*
    };
}

/// Methods that begin something with parts, each of which is checked. JSON shows it as this many arrays and objects.
macro_rules! forward_parts {
    ($($levels:literal: $method:ident($($argument:ident: $type:ty),*) -> $answer:ident;)*) => {
        $(
            fn $method(self, $($argument: $type),*) -> Result<Self::$answer, S::Error> {
                let depth = self.deeper($levels)?;
                self.inner.$method($($argument),*).map(|parts| CheckedParts { parts, depth })
            }
        )*
    };
}

impl<S: Serializer> Serializer for CheckedSerializer<S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = CheckedParts<S::SerializeSeq>;
    type SerializeTuple = CheckedParts<S::SerializeTuple>;
    type SerializeTupleStruct = CheckedParts<S::SerializeTupleStruct>;
    type SerializeTupleVariant = CheckedParts<S::SerializeTupleVariant>;
    type SerializeMap = CheckedParts<S::SerializeMap>;
    type SerializeStruct = CheckedParts<S::SerializeStruct>;
    type SerializeStructVariant = CheckedParts<S::SerializeStructVariant>;

    forward! {
        serialize_bool(v: bool) -> S::Ok;
        serialize_i8(v: i8) -> S::Ok;
        serialize_i16(v: i16) -> S::Ok;
        serialize_i32(v: i32) -> S::Ok;
        serialize_i64(v: i64) -> S::Ok;
        serialize_u8(v: u8) -> S::Ok;
        serialize_u16(v: u16) -> S::Ok;
        serialize_u32(v: u32) -> S::Ok;
        serialize_u64(v: u64) -> S::Ok;
        serialize_char(v: char) -> S::Ok;
        serialize_str(v: &str) -> S::Ok;
        serialize_bytes(v: &[u8]) -> S::Ok;
        serialize_unit_variant(name: &'static str, index: u32, variant: &'static str) -> S::Ok;
    }

    forward_parts! {
        1: serialize_seq(len: Option<usize>) -> SerializeSeq;
        1: serialize_tuple(len: usize) -> SerializeTuple;
        1: serialize_tuple_struct(name: &'static str, len: usize) -> SerializeTupleStruct;
        2: serialize_tuple_variant(name: &'static str, index: u32, variant: &'static str, len: usize)
            -> SerializeTupleVariant;
        1: serialize_map(len: Option<usize>) -> SerializeMap;
        1: serialize_struct(name: &'static str, len: usize) -> SerializeStruct;
        2: serialize_struct_variant(name: &'static str, index: u32, variant: &'static str, len: usize)
            -> SerializeStructVariant;
    }

    fn serialize_i128(self, v: i128) -> Result<S::Ok, S::Error> {
        self.inner.serialize_i128(v).map_err(|_| S::Error::custom(TOO_LARGE))
    }

    fn serialize_u128(self, v: u128) -> Result<S::Ok, S::Error> {
        self.inner.serialize_u128(v).map_err(|_| S::Error::custom(TOO_LARGE))
    }

    fn serialize_f32(self, v: f32) -> Result<S::Ok, S::Error> {
        if v.is_finite() { self.inner.serialize_f32(v) } else { Err(S::Error::custom(NOT_FINITE)) }
    }

    fn serialize_f64(self, v: f64) -> Result<S::Ok, S::Error> {
        if v.is_finite() { self.inner.serialize_f64(v) } else { Err(S::Error::custom(NOT_FINITE)) }
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.for_null()?.serialize_none()
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.for_null()?.serialize_unit()
    }

    fn serialize_unit_struct(self, name: &'static str) -> Result<S::Ok, S::Error> {
        self.for_null()?.serialize_unit_struct(name)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.serialize_some(&Checked { value, in_some: true, depth: self.depth })
    }

    /// JSON shows the value alone.
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let Self { inner, in_some, depth } = self;
        inner.serialize_newtype_struct(name, &Checked { value, in_some, depth })
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let depth = self.deeper(1)?;
        self.inner.serialize_newtype_variant(name, index, variant, &Checked::part(value, depth))
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// The parts of a value, inside `depth` arrays and objects.
struct CheckedParts<P> {
    parts: P,
    depth: u8,
}

/// Values with parts that have no names.
macro_rules! check_elements {
    ($($trait:ident::$method:ident;)*) => {
        $(
            impl<P: $trait> $trait for CheckedParts<P> {
                type Ok = P::Ok;
                type Error = P::Error;

                fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), P::Error> {
                    self.parts.$method(&Checked::part(value, self.depth))
                }

                fn end(self) -> Result<P::Ok, P::Error> {
                    self.parts.end()
                }
            }
        )*
    };
}

/// Values with named parts.
macro_rules! check_fields {
    ($($trait:ident;)*) => {
        $(
            impl<P: $trait> $trait for CheckedParts<P> {
                type Ok = P::Ok;
                type Error = P::Error;

                fn serialize_field<T: Serialize + ?Sized>(
                    &mut self,
                    key: &'static str,
                    value: &T,
                ) -> Result<(), P::Error> {
                    self.parts.serialize_field(key, &Checked::part(value, self.depth))
                }

                fn end(self) -> Result<P::Ok, P::Error> {
                    self.parts.end()
                }
            }
        )*
    };
}

check_elements! {
    SerializeSeq::serialize_element;
    SerializeTuple::serialize_element;
    SerializeTupleStruct::serialize_field;
    SerializeTupleVariant::serialize_field;
}

check_fields! {
    SerializeStruct;
    SerializeStructVariant;
}

impl<P: SerializeMap> SerializeMap for CheckedParts<P> {
    type Ok = P::Ok;
    type Error = P::Error;

    /// Keys are texts in JSON, which are not changed.
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), P::Error> {
        self.parts.serialize_key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), P::Error> {
        self.parts.serialize_value(&Checked::part(value, self.depth))
    }

    fn end(self) -> Result<P::Ok, P::Error> {
        self.parts.end()
    }
}
