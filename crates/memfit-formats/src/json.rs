//! What the JSON readers share: objects only as objects, lists read element by element, names of variants,
//! and places in the file.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::FormatError;

/// The longest name, in bytes.
pub(crate) const MAX_NAME: usize = 1 << 20;

/// Whether `text` is an object that has all of `keys` at its top. Time linear in the text.
pub(crate) fn has_keys(text: &str, keys: &[&str]) -> bool {
    type Members<'a> = std::collections::BTreeMap<std::borrow::Cow<'a, str>, serde::de::IgnoredAny>;
    let members: Result<Members<'_>, _> = serde_json::from_str(text);
    members.is_ok_and(|members| keys.iter().all(|key| members.contains_key(*key)))
}

/// A `T` written as an object. Serde's derived readers would take `[1, 2]` for `{"a": 1, "b": 2}` too.
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = Object<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Members(PhantomData))
    }
}

/// An `Object` in a struct: use with `deserialize_with`.
pub(crate) fn object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    Object::deserialize(from).map(|object| Some(object.0))
}

/// Objects in a list in a struct: use with `deserialize_with`.
pub(crate) fn objects<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Vec::<Object<T>>::deserialize(from).map(|list| list.into_iter().map(|object| object.0).collect())
}

/// Reads a variant by its name in files.
pub(crate) fn variant<'de, T, D: Deserializer<'de>>(
    from: D,
    by_name: fn(&str) -> Option<T>,
    names: impl Fn() -> Vec<&'static str>,
) -> Result<T, D::Error> {
    struct Name<T, N>(fn(&str) -> Option<T>, N);
    impl<T, N: Fn() -> Vec<&'static str>> Visitor<'_> for Name<T, N> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "one of `{}`", (self.1)().join("`, `"))
        }
        fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<T, E> {
            (self.0)(name).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(name), &self))
        }
    }
    from.deserialize_str(Name(by_name, names))
}

/// A module for `serde(with)` that reads and writes the names of a type's variants.
macro_rules! variants {
    ($($module:ident: $type:ty),+) => {$(
        pub(crate) mod $module {
            pub(crate) fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<$type, D::Error> {
                let names = || <$type>::ALL.iter().map(|(_, name)| *name).collect();
                crate::json::variant(from, <$type>::by_name, names)
            }
            #[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
            pub(crate) fn serialize<S: serde::Serializer>(value: &$type, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(value.name())
            }
        }
    )+};
}
variants!(dtype: memfit_ir::Dtype, role: memfit_ir::Role, phase: memfit_ir::Phase, effect: memfit_ir::Effect);

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Hands each element of the list `part` (a part of `whole`, called `list` in messages) to `take`, so that no
/// list is in memory twice. At most `most` elements.
pub(crate) fn for_each<'de, T: Deserialize<'de>>(
    whole: &str,
    part: &'de str,
    list: &str,
    most: usize,
    take: impl FnMut(usize, T) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    struct Elements<'a, T, F> {
        next: &'a mut usize,
        most: usize,
        take: F,
        refused: &'a mut Option<FormatError>,
        of: PhantomData<T>,
    }
    impl<'de, T: Deserialize<'de>, F: FnMut(usize, T) -> Result<(), FormatError>> DeserializeSeed<'de>
        for Elements<'_, T, F>
    {
        type Value = ();
        fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
            from.deserialize_seq(self)
        }
    }
    impl<'de, T: Deserialize<'de>, F: FnMut(usize, T) -> Result<(), FormatError>> Visitor<'de>
        for Elements<'_, T, F>
    {
        type Value = ();
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }
        fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
            while let Some(element) = seq.next_element()? {
                if *self.next >= self.most {
                    return Err(A::Error::custom(format!("more than {} elements", self.most)));
                }
                if let Err(error) = (self.take)(*self.next, element) {
                    *self.refused = Some(error);
                    return Err(A::Error::custom("refused"));
                }
                *self.next += 1;
            }
            Ok(())
        }
    }
    let (mut next, mut refused) = (0, None);
    let elements = Elements { next: &mut next, most, take, refused: &mut refused, of: PhantomData };
    let mut reader = serde_json::Deserializer::from_str(part);
    match elements.deserialize(&mut reader) {
        Ok(()) => Ok(()),
        Err(error) => Err(refused.unwrap_or_else(|| {
            let within = part.starts_with('[').then(|| format!("{list}[{next}]"));
            refuse(whole, part, within.as_deref().unwrap_or(list), &error)
        })),
    }
}

/// Reads the outermost object. Where that fails and `schema` is another one than `expected`, the error is that.
pub(crate) fn outermost<'de, T: Deserialize<'de>>(text: &'de str, expected: &str) -> Result<T, FormatError> {
    #[derive(Deserialize)]
    struct Probe {
        schema: Option<String>,
    }
    if text.trim().is_empty() {
        return Err(FormatError::new("", "the file is empty"));
    }
    serde_json::from_str::<Object<T>>(text).map(|object| object.0).map_err(
        |error| match serde_json::from_str::<Object<Probe>>(text) {
            Ok(Object(Probe { schema: Some(found) })) if found != expected => wrong_schema(&found, expected),
            Ok(Object(Probe { schema: None })) => {
                FormatError::new("", format!("there is no key `schema`, so this is not a `{expected}` file"))
            }
            _ => refuse(text, text, "", &error),
        },
    )
}

pub(crate) fn wrong_schema(found: &str, expected: &str) -> FormatError {
    let known: String = found.chars().take(100).collect();
    let error =
        FormatError::new("schema", format!("`{known}` is not `{expected}`, which is what this reader knows"));
    match (found, expected) {
        ("memfit-plan/1", "memfit-graph/1") => {
            error.hint("this is a plan, and a graph is wanted here: `memfit check PLAN GRAPH`")
        }
        ("memfit-graph/1", "memfit-plan/1") => {
            error.hint("this is a graph; `memfit plan GRAPH -o PLAN` makes a plan of it, `memfit check PLAN GRAPH` reads one")
        }
        _ => error,
    }
}

/// The error of serde for `part`, which is a part of `whole`, with lines and columns counted in `whole`.
fn refuse(whole: &str, part: &str, element: &str, error: &serde_json::Error) -> FormatError {
    let before = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize).and_then(|at| whole.get(..at));
    let before = before.unwrap_or_default();
    let line = before.bytes().filter(|&byte| byte == b'\n').count() + error.line();
    let indent = before.len() - before.rfind('\n').map_or(0, |at| at + 1);
    let column = if error.line() <= 1 { indent + error.column() } else { error.column() };
    let message = error.to_string();
    let suffix = format!(" at line {} column {}", error.line(), error.column());
    let message = message.strip_suffix(&suffix).unwrap_or(&message);
    let message = match message {
        _ if error.is_eof() => "the file ends in the middle".to_owned(),
        "trailing characters" => "there is more than the schema has here".to_owned(),
        _ => readable(message),
    };
    let comma = if element.is_empty() { "" } else { ", " };
    FormatError::new(format!("{element}{comma}line {line} column {column}"), message)
}

/// Serde's message without the names of Rust's types.
fn readable(message: &str) -> String {
    const TYPES: [(&str, &str); 5] = [
        ("u16", "a whole number below 2^16"),
        ("u32", "a whole number below 2^32"),
        ("u64", "a whole number below 2^64"),
        ("f32", "a number"),
        ("f64", "a number"),
    ];
    let found = TYPES.iter().find_map(|(name, text)| Some((message.strip_suffix(name)?, text)));
    found
        .filter(|(rest, _)| rest.ends_with("expected "))
        .map_or(message.to_owned(), |(rest, text)| format!("{rest}{text}"))
}

/// Appends `value` as compact JSON.
pub(crate) fn put(out: &mut Vec<u8>, value: &impl Serialize) {
    let written = serde_json::to_writer(&mut *out, value);
    debug_assert!(written.is_ok(), "numbers, strings and lists of them always have a JSON form");
}

/// Appends `"key": value`, with what separates it from the key before.
pub(crate) fn put_key(out: &mut Vec<u8>, key: &str, value: &impl Serialize) {
    start_key(out, key);
    put(out, value);
}

/// Appends `"key": [`, one element a line, `]`.
pub(crate) fn put_lines<T: Serialize>(out: &mut Vec<u8>, key: &str, elements: impl Iterator<Item = T>) {
    start_key(out, key);
    out.push(b'[');
    let mut separator: &[u8] = b"\n    ";
    for element in elements {
        out.extend_from_slice(separator);
        put(out, &element);
        separator = b",\n    ";
    }
    if separator.starts_with(b",") {
        out.extend_from_slice(b"\n  ");
    }
    out.push(b']');
}

fn start_key(out: &mut Vec<u8>, key: &str) {
    out.extend_from_slice(if out.is_empty() { b"{\n  " } else { b",\n  " });
    put(out, &key);
    out.extend_from_slice(b": ");
}
