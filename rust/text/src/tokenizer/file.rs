//! The outer form of a tokenizer.json: its size, depth and sections. Nothing is built here.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::{Failure, Result};

const FILE_LIMIT: usize = 256 << 20; // bytes; the largest in use are about 35 MB
const DEPTH_LIMIT: usize = 24; // real files reach 7

#[derive(Deserialize)]
pub struct AddedTokenEntry {
    pub id: u32,
    pub content: String,
    pub single_word: bool,
    pub lstrip: bool,
    pub rstrip: bool,
    pub normalized: bool,
    pub special: bool,
}

/// `truncation` and `padding` are left out on purpose: files carry whatever their training used, and a server decides
/// on lengths itself.
#[derive(Deserialize)]
pub struct TokenizerFile<'a> {
    pub version: Option<String>,
    #[serde(default)]
    pub added_tokens: Option<Vec<AddedTokenEntry>>,
    #[serde(borrow, default)]
    pub normalizer: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub pre_tokenizer: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub post_processor: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub decoder: Option<&'a RawValue>,
    #[serde(borrow)]
    pub model: &'a RawValue,
}

pub fn parse(bytes: &[u8]) -> Result<TokenizerFile<'_>> {
    if bytes.len() > FILE_LIMIT {
        return Err(Failure::exhausted(format!("tokenizer.json has {} bytes; the limit is {FILE_LIMIT}", bytes.len())));
    }
    check_depth(bytes)?;
    let file: TokenizerFile =
        serde_json::from_slice(bytes).map_err(|e| Failure::corrupt(format!("tokenizer.json: {e}")))?;
    match file.version.as_deref() {
        None | Some("1.0") => Ok(file),
        Some(v) => Err(Failure::unsupported(format!(
            "tokenizer.json has version {}; only 1.0 is read",
            crate::error::quoted(v)
        ))),
    }
}

/// Parsers and destructors recurse with the nesting, so it is bounded before any of them sees the text.
fn check_depth(bytes: &[u8]) -> Result<()> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for (offset, &b) in bytes.iter().enumerate() {
        if in_string {
            match b {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match b {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth += 1;
                if depth > DEPTH_LIMIT {
                    return Err(Failure::corrupt(format!(
                        "tokenizer.json is nested more than {DEPTH_LIMIT} deep at offset {offset}"
                    )));
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_brackets_outside_strings_only() {
        assert!(check_depth(br#"{"a":"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["}"#).is_ok());
        assert!(check_depth(br#"{"a":"\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["}"#).is_ok());
        assert!(check_depth("[".repeat(DEPTH_LIMIT).as_bytes()).is_ok());
        assert!(check_depth("[".repeat(DEPTH_LIMIT + 1).as_bytes()).is_err());
    }
}
