//! The Huffman code of headers: <https://www.rfc-editor.org/rfc/rfc7541#appendix-B>.

use super::BadBlock;

/// The length of the longest code in bits.
const CODE_BITS_MAX: usize = 30;
/// The symbol that ends a string. It is never sent.
const END: u16 = 256;

/// The length in bits of the code of each byte and of [`END`]. The lengths determine the codes: shorter codes come
/// first, and codes of equal length are in the order of their symbols.
#[rustfmt::skip]
const CODE_BITS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6,
    6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8,
    13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15,
    11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23,
    23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26,
    26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21,
    22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27,
    27, 26, 30,
];

/// The symbols in the order of their codes, and the number of codes of each length.
struct Codes {
    symbols: [u16; 257],
    counts: [u32; CODE_BITS_MAX + 1],
}

static CODES: Codes = codes();

#[expect(clippy::cast_possible_truncation, reason = "the symbols are below 257")]
const fn codes() -> Codes {
    let mut codes = Codes { symbols: [0; 257], counts: [0; CODE_BITS_MAX + 1] };
    let (mut bits, mut place) = (1, 0);
    while bits <= CODE_BITS_MAX {
        let mut symbol = 0;
        while symbol < CODE_BITS.len() {
            if CODE_BITS[symbol] as usize == bits {
                codes.symbols[place] = symbol as u16;
                codes.counts[bits] += 1;
                place += 1;
            }
            symbol += 1;
        }
        bits += 1;
    }
    codes
}

/// Decodes a Huffman-coded string.
///
/// # Errors
/// A code that no symbol has; padding of eight bits or more, or with a bit that is zero.
pub fn decode(text: &[u8]) -> Result<Vec<u8>, BadBlock> {
    // The shortest code has five bits.
    let mut decoded = Vec::with_capacity(text.len() * 8 / 5);
    let mut code = Code::default();
    for byte in text {
        for bit in (0..8).rev() {
            match code.push(byte >> bit & 1)? {
                Some(END) => return Err(BadBlock::Code),
                #[expect(clippy::cast_possible_truncation, reason = "all symbols but `END` are bytes")]
                Some(symbol) => decoded.push(symbol as u8),
                None => {}
            }
        }
    }
    match code.bits < 8 && code.is_all_ones() {
        true => Ok(decoded),
        false => Err(BadBlock::Code),
    }
}

/// The bits of a code that is not complete.
#[derive(Default)]
struct Code {
    bits: usize,
    value: u32,
    /// The first code of this length.
    first: u32,
    /// The number of symbols with shorter codes.
    shorter: u32,
}

impl Code {
    /// Appends a bit. Returns the symbol when the bit completes its code.
    fn push(&mut self, bit: u8) -> Result<Option<u16>, BadBlock> {
        self.bits += 1;
        let count = *CODES.counts.get(self.bits).ok_or(BadBlock::Code)?;
        self.value = self.value << 1 | u32::from(bit);
        self.first <<= 1;
        match self.value.checked_sub(self.first).filter(|place| *place < count) {
            Some(place) => {
                let symbol = CODES.symbols[(self.shorter + place) as usize];
                *self = Self::default();
                Ok(Some(symbol))
            }
            None => {
                self.first += count;
                self.shorter += count;
                Ok(None)
            }
        }
    }

    fn is_all_ones(&self) -> bool {
        self.value == (1 << self.bits) - 1
    }
}

/// Encodes a string, for tests.
#[cfg(test)]
pub fn encode(text: &[u8]) -> Vec<u8> {
    let (mut encoded, mut bits, mut num_bits) = (Vec::new(), 0u64, 0);
    for byte in text {
        let length = usize::from(CODE_BITS[usize::from(*byte)]);
        bits = bits << length | u64::from(code(u16::from(*byte), length));
        num_bits += length;
        while num_bits >= 8 {
            num_bits -= 8;
            encoded.push((bits >> num_bits) as u8);
        }
    }
    if num_bits > 0 {
        // The padding is the beginning of the code that ends a string, which has ones only.
        encoded.push((bits << (8 - num_bits)) as u8 | (0xff >> num_bits));
    }
    encoded
}

/// Returns the code of a symbol, which has `length` bits.
#[cfg(test)]
fn code(symbol: u16, length: usize) -> u32 {
    let first = (1..=length).fold(0, |first, bits| (first + CODES.counts[bits - 1]) << 1);
    let shorter: u32 = CODES.counts[..length].iter().sum();
    let place = CODES.symbols.iter().position(|other| *other == symbol).unwrap_or_default();
    first + place as u32 - shorter
}
