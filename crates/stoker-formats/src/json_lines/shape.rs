//! The shape of JSON values, from which the types of columns are found.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::text_rows::{FIELDS_MAX, TextType};

/// What the values of a field look like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum JsonShape {
    /// There are only nulls.
    #[default]
    Null,
    Boolean,
    /// Whole numbers: whether some are negative, and whether some are larger than those of `int64`.
    Integer {
        is_negative: bool,
        is_large: bool,
    },
    Float,
    Text,
    List(Box<JsonShape>),
    Object(JsonFields),
}

/// The fields of objects, in the order in which they were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JsonFields {
    pub fields: Vec<(String, JsonShape)>,
    index: HashMap<String, usize>,
}

impl JsonFields {
    /// Adds a field, or merges its shape with the known one. Returns the number of fields that are new.
    fn add(&mut self, name: &str, shape: JsonShape) -> usize {
        let known = self.index.get(name).and_then(|at| self.fields.get_mut(*at));
        if let Some((_, known)) = known {
            return known.merge(shape);
        }
        let added = 1 + shape.num_fields();
        self.index.insert(name.to_string(), self.fields.len());
        self.fields.push((name.to_string(), shape));
        added
    }

    fn get(&self, name: &str) -> Option<&JsonShape> {
        self.index.get(name).and_then(|at| self.fields.get(*at)).map(|(_, shape)| shape)
    }
}

impl JsonShape {
    /// Whether values of both shapes can be in one column.
    pub fn fits(&self, other: &Self) -> bool {
        use JsonShape::{Boolean, Float, Integer, List, Null, Object, Text};
        match (self, other) {
            (Null, _) | (_, Null) | (Boolean, Boolean) | (Text, Text) => true,
            (Float | Integer { .. }, Float) | (Float, Integer { .. }) => true,
            (
                Integer { is_negative, is_large },
                Integer { is_negative: other_is_negative, is_large: other_is_large },
            ) => !((*is_negative || *other_is_negative) && (*is_large || *other_is_large)),
            (List(item), List(other)) => item.fits(other),
            (Object(fields), Object(other)) => {
                let fits = |(name, shape): &(String, Self)| fields.get(name).is_none_or(|known| known.fits(shape));
                other.fields.iter().all(fits)
            }
            _ => false,
        }
    }

    /// Makes the shape that of a column with values of both shapes, which fit. Returns the number of fields that are new.
    pub fn merge(&mut self, other: Self) -> usize {
        match (self, other) {
            (this @ Self::Null, other) => {
                *this = other;
                this.num_fields()
            }
            (this @ Self::Integer { .. }, Self::Float) => {
                *this = Self::Float;
                0
            }
            (
                Self::Integer { is_negative, is_large },
                Self::Integer { is_negative: other_is_negative, is_large: other_is_large },
            ) => {
                *is_negative |= other_is_negative;
                *is_large |= other_is_large;
                0
            }
            (Self::List(item), Self::List(other)) => item.merge(*other),
            (Self::Object(fields), Self::Object(other)) => {
                other.fields.into_iter().map(|(name, shape)| fields.add(&name, shape)).sum()
            }
            _ => 0,
        }
    }

    /// The number of fields of all objects in the shape.
    pub fn num_fields(&self) -> usize {
        match self {
            Self::List(item) => item.num_fields(),
            Self::Object(fields) => fields.fields.iter().map(|(_, field)| 1 + field.num_fields()).sum(),
            _ => 0,
        }
    }

    /// The type of a column with such values.
    pub fn text_type(&self) -> TextType {
        match self {
            Self::Null | Self::Text => TextType::Text,
            Self::Boolean => TextType::Boolean,
            Self::Integer { is_large: true, .. } => TextType::Unsigned,
            Self::Integer { .. } => TextType::Integer,
            Self::Float => TextType::Float,
            Self::List(item) => TextType::List(Box::new(item.text_type())),
            Self::Object(fields) => TextType::Struct(fields.text_types()),
        }
    }
}

impl JsonFields {
    /// The names of the fields, and the types of their columns.
    pub fn text_types(&self) -> Vec<(String, TextType)> {
        self.fields.iter().map(|(name, shape)| (name.clone(), shape.text_type())).collect()
    }
}

/// Returns the shape of a line.
///
/// # Errors
/// The error of the parser, for lines that are no JSON, for lists whose items do not fit each other, and for objects with
/// too many fields.
pub(super) fn shape(line: &[u8]) -> serde_json::Result<JsonShape> {
    let num_fields = Cell::new(0);
    let mut deserializer = serde_json::Deserializer::from_slice(line);
    let shape = ObserveShape { num_fields: &num_fields }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(shape)
}

/// Finds the shape of a value.
#[derive(Clone, Copy)]
struct ObserveShape<'a> {
    /// The number of fields of the line that were not known before.
    num_fields: &'a Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for ObserveShape<'_> {
    type Value = JsonShape;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<JsonShape, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ObserveShape<'_> {
    type Value = JsonShape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<JsonShape, E> {
        Ok(JsonShape::Null)
    }

    fn visit_bool<E: serde::de::Error>(self, _value: bool) -> Result<JsonShape, E> {
        Ok(JsonShape::Boolean)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<JsonShape, E> {
        Ok(JsonShape::Integer { is_negative: value < 0, is_large: false })
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<JsonShape, E> {
        Ok(JsonShape::Integer { is_negative: false, is_large: i64::try_from(value).is_err() })
    }

    fn visit_f64<E: serde::de::Error>(self, _value: f64) -> Result<JsonShape, E> {
        Ok(JsonShape::Float)
    }

    fn visit_str<E: serde::de::Error>(self, _value: &str) -> Result<JsonShape, E> {
        Ok(JsonShape::Text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<JsonShape, A::Error> {
        let mut item = JsonShape::Null;
        while let Some(next) = seq.next_element_seed(self)? {
            if !item.fits(&next) {
                return Err(A::Error::custom("a list has values of several types"));
            }
            // Items that have the same fields count once.
            let counted = next.num_fields();
            let added = item.merge(next);
            self.num_fields.set(self.num_fields.get().saturating_sub(counted).saturating_add(added));
        }
        Ok(JsonShape::List(Box::new(item)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonShape, A::Error> {
        let mut fields = JsonFields::default();
        while let Some(name) = map.next_key::<String>()? {
            self.num_fields.set(self.num_fields.get().saturating_add(1));
            if self.num_fields.get() > FIELDS_MAX {
                return Err(A::Error::custom(format_args!("the object has more than {FIELDS_MAX} fields")));
            }
            let shape = map.next_value_seed(self)?;
            fields.add(&name, shape);
        }
        Ok(JsonShape::Object(fields))
    }
}
