//! SentencePiece's normalisation table: a double array whose leaves point into a block of NUL-ended replacements.
//! At each place the longest match is replaced.

pub struct CharsMap {
    units: Vec<u32>,
    texts: String,
}

impl CharsMap {
    /// `blob`: the array's size in bytes (little endian), the array, the replacements.
    pub fn new(blob: &[u8]) -> Result<CharsMap, String> {
        let (size, rest) = blob.split_first_chunk::<4>().ok_or("shorter than its own header")?;
        let size = u32::from_le_bytes(*size) as usize;
        if size == 0 || size % 4 != 0 || size > rest.len() {
            return Err(format!("its array should have {size} bytes, but {} are left", rest.len()));
        }
        let (array, texts) = rest.split_at(size);
        let units =
            array.chunks_exact(4).map(|unit| u32::from_le_bytes([unit[0], unit[1], unit[2], unit[3]]));
        let texts = std::str::from_utf8(texts).map_err(|_| "its replacements are not UTF-8")?;
        Ok(CharsMap { units: units.collect(), texts: texts.to_string() })
    }

    /// Bytes matched at the beginning of `text`, and where the replacement stands.
    fn longest(&self, text: &[u8]) -> Option<(usize, usize)> {
        let offset = |unit: u32| ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize;
        let mut found = None;
        let mut at = offset(*self.units.first()?);
        for (count, byte) in text.iter().enumerate() {
            at ^= *byte as usize;
            let unit = *self.units.get(at)?;
            if *byte == 0 || unit & (1 << 31 | 0xFF) != *byte as u32 {
                break;
            }
            at ^= offset(unit);
            if unit & (1 << 8) != 0 {
                found = Some((count + 1, (*self.units.get(at)? & ((1 << 31) - 1)) as usize));
            }
        }
        found
    }

    pub fn apply(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        while let Some(c) = text[at..].chars().next() {
            let replaced = self.longest(&text.as_bytes()[at..]).and_then(|(size, place)| {
                let tail = self.texts.get(place..)?;
                text.is_char_boundary(at + size).then(|| (size, tail.split('\0').next().unwrap_or_default()))
            });
            match replaced {
                Some((size, text)) => {
                    out.push_str(text);
                    at += size;
                }
                None => {
                    out.push(c);
                    at += c.len_utf8();
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_tables_are_refused_or_harmless() {
        assert!(CharsMap::new(b"").is_err());
        assert!(CharsMap::new(&[8, 0, 0, 0, 1, 2, 3, 4]).is_err());
        assert!(CharsMap::new(&[3, 0, 0, 0, 1, 2, 3]).is_err());
        let wild: Vec<u8> = [4u32.to_le_bytes(), [0xFF; 4]].concat();
        assert_eq!(CharsMap::new(&wild).unwrap().apply("añ🎉"), "añ🎉");
    }
}
