//! The fields of messages of protocol buffers, without knowing their names.

/// A field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field<'a> {
    pub(super) number: u64,
    pub(super) value: Value<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Number(u64),
    /// A text, bytes, or a message.
    Bytes(&'a [u8]),
}

/// The fields of a message, in the order in which they were sent, to where it is damaged.
pub(super) fn fields(message: &[u8]) -> impl Iterator<Item = Field<'_>> {
    let mut rest = message;
    std::iter::from_fn(move || field(&mut rest))
}

/// The texts or messages that a field of this number has.
pub(super) fn all(message: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    fields(message).filter_map(move |it| match it.value {
        Value::Bytes(bytes) if it.number == number => Some(bytes),
        _ => None,
    })
}

/// The text or message that a field has.
pub(super) fn bytes(message: &[u8], number: u64) -> Option<&[u8]> {
    all(message, number).last()
}

/// Whether a field is there, and is not false.
pub(super) fn is_set(message: &[u8], number: u64) -> bool {
    let mut set = fields(message).filter(|it| it.number == number);
    set.any(|it| it.value != Value::Number(0))
}

fn field<'a>(rest: &mut &'a [u8]) -> Option<Field<'a>> {
    let tag = number(rest)?;
    let value = match tag & 7 {
        0 => Value::Number(number(rest)?),
        1 => Value::Bytes(take(rest, 8)?),
        2 => {
            let length = usize::try_from(number(rest)?).ok()?;
            Value::Bytes(take(rest, length)?)
        }
        5 => Value::Bytes(take(rest, 4)?),
        // Groups, which nobody sends any more.
        _ => return None,
    };
    Some(Field {
        number: tag >> 3,
        value,
    })
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

/// A number in groups of seven bits, the lowest first.
fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let [byte] = *take(rest, 1)?.first_chunk()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_have_numbers_and_bytes() {
        // The example of the encoding's own documentation, and a text.
        let message = b"\x08\x96\x01\x12\x07testing\x18\x00";
        let number = |number, value| Field { number, value };
        let expected = [
            number(1, Value::Number(150)),
            number(2, Value::Bytes(b"testing")),
            number(3, Value::Number(0)),
        ];
        assert_eq!(fields(message).collect::<Vec<_>>(), expected);
        assert_eq!(bytes(message, 2), Some(&b"testing"[..]));
        assert!(is_set(message, 1) && !is_set(message, 3) && !is_set(message, 4));
        assert_eq!(fields(&message[..6]).count(), 1, "the end is not there");
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_much(message in vec(any::<u8>(), 0..60)) {
            prop_assert!(fields(&message).count() <= message.len());
        }
    }
}
