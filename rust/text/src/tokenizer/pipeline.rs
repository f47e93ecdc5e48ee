//! The normalizer, pre-tokenizer, post-processor and decoder sections of a tokenizer.json.
//!
//! Each section is a component or a `Sequence` of them. A component whose `type` is not in the lists below is refused
//! by name: a guess would give other ids. What a component may do to the length of a text is bounded, too, since a
//! short file could otherwise turn one character into gigabytes.

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokenizers::{DecoderWrapper, PostProcessorWrapper, SplitDelimiterBehavior};

use super::guarded::{GuardedNormalizer, GuardedPreTokenizer, GuardedRegex, GPT2_PATTERN};
use super::stream::Stage;
use crate::error::{quoted, Failure, Result};

const SECTION_LIMIT: usize = 256 << 10; // bytes
const COMPONENT_LIMIT: usize = 32;
const NESTING_LIMIT: usize = 3;
const GROWTH_LIMIT: usize = 256; // output bytes per input byte, all steps of a section together
const INSERT_LIMIT: usize = 64; // bytes of a prefix or suffix
const TEMPLATE_LIMIT: usize = 64; // pieces of a template, and ids of one of its tokens

const NORMALIZERS: [&str; 12] = [
    "BertNormalizer",
    "ByteLevel",
    "Lowercase",
    "NFC",
    "NFD",
    "NFKC",
    "NFKD",
    "Nmt",
    "Prepend",
    "Replace",
    "Strip",
    "StripAccents",
];
const PRE_TOKENIZERS: [&str; 8] =
    ["BertPreTokenizer", "ByteLevel", "Digits", "Metaspace", "Punctuation", "Split", "Whitespace", "WhitespaceSplit"];
const POST_PROCESSORS: [&str; 4] = ["BertProcessing", "ByteLevel", "RobertaProcessing", "TemplateProcessing"];
const DECODERS: [&str; 8] =
    ["BPEDecoder", "ByteFallback", "ByteLevel", "Fuse", "Metaspace", "Replace", "Strip", "WordPiece"];

/// Walks one section. `section` names it in messages.
struct Walk {
    section: &'static str,
    children: &'static str,
    known: &'static [&'static str],
    components: usize,
    growth: usize,
    /// Growth by Unicode normalisation, which happens once however often it is asked for.
    unicode_growth: usize,
}

impl Walk {
    fn new(section: &'static str, children: &'static str, known: &'static [&'static str]) -> Self {
        Walk { section, children, known, components: 0, growth: 1, unicode_growth: 1 }
    }
    fn read(&self, raw: &RawValue) -> Result<Value> {
        if raw.get().len() > SECTION_LIMIT {
            // The only large component there is: a SentencePiece character map.
            let what = if raw.get().contains("\"Precompiled\"") { " (a Precompiled normalizer?)" } else { "" };
            return Err(Failure::unsupported(format!(
                "{} has {} bytes{what}; the limit is {SECTION_LIMIT}",
                self.section,
                raw.get().len()
            )));
        }
        serde_json::from_str(raw.get()).map_err(|e| self.corrupt(&e.to_string()))
    }
    fn corrupt(&self, what: &str) -> Failure {
        Failure::corrupt(format!("tokenizer.json, {}: {what}", self.section))
    }
    /// The type of a component and its members; counts it.
    fn open<'v>(&mut self, value: &'v Value, depth: usize) -> Result<(&'v str, &'v Map<String, Value>)> {
        let object = value.as_object().ok_or_else(|| self.corrupt("a component is not an object"))?;
        let kind = object.get("type").and_then(Value::as_str).ok_or_else(|| self.corrupt("a component has no type"))?;
        self.components += 1;
        if self.components > COMPONENT_LIMIT || depth > NESTING_LIMIT {
            return Err(self.corrupt(&format!(
                "more than {COMPONENT_LIMIT} components, or Sequences nested more than {NESTING_LIMIT} deep"
            )));
        }
        if kind != "Sequence" && !self.known.contains(&kind) {
            return Err(Failure::unsupported(format!(
                "{} {} is not supported; Sequence, {} are",
                self.section,
                quoted(kind),
                self.known.join(", ")
            )));
        }
        Ok((kind, object))
    }
    fn children<'v>(&self, object: &'v Map<String, Value>) -> Result<&'v [Value]> {
        object
            .get(self.children)
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .ok_or_else(|| self.corrupt(&format!("a Sequence has no list {}", quoted(self.children))))
    }
    fn grow(&mut self, factor: usize) -> Result<()> {
        self.growth = self.growth.saturating_mul(factor.max(1));
        if self.growth > GROWTH_LIMIT {
            return Err(self.corrupt(&format!("its steps could make a text {} times longer", self.growth)));
        }
        Ok(())
    }
    fn total_growth(&self) -> usize {
        self.growth * self.unicode_growth
    }
    fn text<'v>(&self, object: &'v Map<String, Value>, key: &str) -> Result<&'v str> {
        object.get(key).and_then(Value::as_str).ok_or_else(|| self.corrupt(&format!("no string {}", quoted(key))))
    }
    fn flag(&self, object: &Map<String, Value>, key: &str, absent: bool) -> Result<bool> {
        match object.get(key) {
            None => Ok(absent),
            Some(v) => v.as_bool().ok_or_else(|| self.corrupt(&format!("{} is not a bool", quoted(key)))),
        }
    }
    fn short<'v>(&self, object: &'v Map<String, Value>, key: &str) -> Result<&'v str> {
        let text = self.text(object, key)?;
        if text.len() > INSERT_LIMIT {
            return Err(self.corrupt(&format!("{} has {} bytes; the limit is {INSERT_LIMIT}", key, text.len())));
        }
        Ok(text)
    }
    /// `pattern` of Split and Replace: {"String": ...} or {"Regex": ...}. Returns the text and whether it is a regex.
    fn pattern<'v>(&self, object: &'v Map<String, Value>) -> Result<(&'v str, bool)> {
        let pattern = object.get("pattern").and_then(Value::as_object).filter(|p| p.len() == 1);
        let entry = pattern.and_then(|p| p.iter().next()).and_then(|(k, v)| Some((k.as_str(), v.as_str()?)));
        match entry {
            Some(("String", text)) => Ok((text, false)),
            Some(("Regex", text)) => Ok((text, true)),
            _ => Err(self.corrupt("a pattern is neither a String nor a Regex")),
        }
    }
    fn library<T: serde::de::DeserializeOwned>(&self, value: &Value) -> Result<T> {
        serde_json::from_value(value.clone()).map_err(|e| self.corrupt(&e.to_string()))
    }
}

fn regex(pattern: (&str, bool)) -> Result<Arc<GuardedRegex>> {
    let (text, is_regex) = pattern;
    Ok(Arc::new(if is_regex { GuardedRegex::new(text)? } else { GuardedRegex::literal(text)? }))
}

/// How much longer a replacement can make a text: a regex may match the empty string at every position.
fn replacement_growth(pattern: (&str, bool), content: &str) -> usize {
    match pattern {
        (_, true) => content.len() + 1,
        (text, false) => content.len().div_ceil(text.len().max(1)) + usize::from(text.is_empty()),
    }
}

// ---- normalizer ----------------------------------------------------------------------------------------------------

/// The normalizer, and how many times longer it can make a text.
pub fn normalizer(raw: &RawValue) -> Result<(GuardedNormalizer, usize)> {
    let mut walk = Walk::new("normalizer", "normalizers", &NORMALIZERS);
    let value = walk.read(raw)?;
    let normalizer = normalizer_part(&mut walk, &value, 0)?;
    Ok((normalizer, walk.total_growth()))
}

fn normalizer_part(walk: &mut Walk, value: &Value, depth: usize) -> Result<GuardedNormalizer> {
    let (kind, object) = walk.open(value, depth)?;
    match kind {
        "Sequence" => {
            let parts = walk.children(object)?.iter().map(|v| normalizer_part(walk, v, depth + 1));
            return Ok(GuardedNormalizer::Sequence(parts.collect::<Result<_>>()?));
        }
        "Replace" => {
            let (pattern, content) = (walk.pattern(object)?, walk.short(object, "content")?);
            walk.grow(replacement_growth(pattern, content))?;
            return Ok(GuardedNormalizer::Replace { pattern: regex(pattern)?, content: content.into() });
        }
        // Once for each piece between added tokens, so maybe once per character.
        "Prepend" => {
            let length = walk.short(object, "prepend")?.len();
            walk.grow(length + 1)?;
        }
        // U+FDFA, 3 bytes, becomes 33.
        "NFKC" | "NFKD" => walk.unicode_growth = 11,
        "NFC" | "NFD" | "Lowercase" | "BertNormalizer" => walk.unicode_growth = walk.unicode_growth.max(3),
        "ByteLevel" => walk.grow(2)?,
        _ => {}
    }
    Ok(GuardedNormalizer::Library(walk.library(value)?))
}

// ---- pre-tokenizer -------------------------------------------------------------------------------------------------

/// The pre-tokenizer, and how many times longer it can make a text.
pub fn pre_tokenizer(raw: &RawValue) -> Result<(GuardedPreTokenizer, usize)> {
    let mut walk = Walk::new("pre_tokenizer", "pretokenizers", &PRE_TOKENIZERS);
    let value = walk.read(raw)?;
    let pre_tokenizer = pre_tokenizer_part(&mut walk, &value, 0)?;
    Ok((pre_tokenizer, walk.total_growth()))
}

fn pre_tokenizer_part(walk: &mut Walk, value: &Value, depth: usize) -> Result<GuardedPreTokenizer> {
    let (kind, object) = walk.open(value, depth)?;
    match kind {
        "Sequence" => {
            let parts = walk.children(object)?.iter().map(|v| pre_tokenizer_part(walk, v, depth + 1));
            return Ok(GuardedPreTokenizer::Sequence(parts.collect::<Result<_>>()?));
        }
        "Split" => {
            let behavior = object.get("behavior").cloned().unwrap_or(Value::Null);
            let behavior: SplitDelimiterBehavior = walk.library(&behavior)?;
            let invert = walk.flag(object, "invert", false)?;
            return Ok(GuardedPreTokenizer::Split { pattern: regex(walk.pattern(object)?)?, behavior, invert });
        }
        "ByteLevel" => {
            walk.grow(2)?;
            if walk.flag(object, "use_regex", true)? {
                let add_prefix_space = walk.flag(object, "add_prefix_space", true)?;
                return Ok(GuardedPreTokenizer::Gpt2 { pattern: regex((GPT2_PATTERN, true))?, add_prefix_space });
            }
        }
        "Metaspace" => walk.grow(4)?, // a space becomes 3 bytes, and each piece may get one in front
        _ => {}
    }
    Ok(GuardedPreTokenizer::Library(walk.library(value)?))
}

// ---- post-processor ------------------------------------------------------------------------------------------------

pub fn post_processor(raw: &RawValue) -> Result<PostProcessorWrapper> {
    let mut walk = Walk::new("post_processor", "processors", &POST_PROCESSORS);
    let value = walk.read(raw)?;
    check_post_processor(&mut walk, &value, 0)?;
    walk.library(&value)
}

fn check_post_processor(walk: &mut Walk, value: &Value, depth: usize) -> Result<()> {
    let (kind, object) = walk.open(value, depth)?;
    match kind {
        "Sequence" => walk.children(object)?.iter().try_for_each(|v| check_post_processor(walk, v, depth + 1)),
        "TemplateProcessing" => check_template(walk, object),
        _ => Ok(()),
    }
}

fn check_template(walk: &Walk, object: &Map<String, Value>) -> Result<()> {
    for key in ["single", "pair"] {
        let pieces = object.get(key).and_then(Value::as_array);
        let pieces = pieces.ok_or_else(|| walk.corrupt(&format!("a template has no list {}", quoted(key))))?;
        if pieces.len() > TEMPLATE_LIMIT {
            let n = pieces.len();
            return Err(walk.corrupt(&format!("template {key} has {n} pieces; the limit is {TEMPLATE_LIMIT}")));
        }
        // A template with the sequence twice would serve the prompt twice.
        let sequences = pieces.iter().filter(|p| p.get("Sequence").is_some()).count();
        if sequences > 2 {
            return Err(walk.corrupt(&format!("template {key} has {sequences} sequences")));
        }
    }
    let tokens = object.get("special_tokens").and_then(Value::as_object);
    for (name, token) in tokens.into_iter().flatten() {
        let count = token.get("ids").and_then(Value::as_array).map_or(0, Vec::len);
        if count > TEMPLATE_LIMIT {
            let name = quoted(name);
            return Err(walk.corrupt(&format!("template token {name} has {count} ids; the limit is {TEMPLATE_LIMIT}")));
        }
    }
    Ok(())
}

// ---- decoder -------------------------------------------------------------------------------------------------------

pub struct LoadedDecoder {
    pub library: Option<DecoderWrapper>,
    /// The same, to be fed token by token.
    pub stages: Vec<Stage>,
    /// How many times longer it can make a token.
    pub growth: usize,
}

pub fn decoder(raw: Option<&RawValue>) -> Result<LoadedDecoder> {
    let Some(raw) = raw else {
        return Ok(LoadedDecoder { library: None, stages: vec![Stage::JoinWithSpaces], growth: 2 });
    };
    let mut walk = Walk::new("decoder", "decoders", &DECODERS);
    let value = walk.read(raw)?;
    let mut stages = Vec::new();
    decoder_part(&mut walk, &value, 0, &mut stages)?;
    // A bad byte becomes a U+FFFD of 3 bytes, an empty WordPiece token a space.
    Ok(LoadedDecoder { library: Some(walk.library(&value)?), stages, growth: 3 * walk.total_growth() })
}

fn decoder_part(walk: &mut Walk, value: &Value, depth: usize, stages: &mut Vec<Stage>) -> Result<()> {
    let (kind, object) = walk.open(value, depth)?;
    stages.push(match kind {
        "Sequence" => {
            return walk.children(object)?.iter().try_for_each(|v| decoder_part(walk, v, depth + 1, stages));
        }
        "ByteLevel" => Stage::ByteLevel,
        "ByteFallback" => Stage::ByteFallback,
        "Fuse" => Stage::Fuse,
        "Replace" => {
            let (pattern, content) = (walk.pattern(object)?, walk.short(object, "content")?);
            if pattern.1 {
                return Err(Failure::unsupported("decoder Replace with a Regex is not supported; a String is"));
            }
            if pattern.0.is_empty() {
                return Err(walk.corrupt("Replace has an empty pattern"));
            }
            walk.grow(replacement_growth(pattern, content))?;
            Stage::Replace { pattern: pattern.0.into(), content: content.into() }
        }
        "Strip" => {
            let content = single_char(walk, object, "content")?;
            let (start, stop) = (count(walk, object, "start")?, count(walk, object, "stop")?);
            if stop != 0 {
                return Err(Failure::unsupported(format!("decoder Strip with stop {stop} is not supported; 0 is")));
            }
            Stage::Strip { content, start }
        }
        "Metaspace" => {
            let never = object.get("prepend_scheme").and_then(Value::as_str) == Some("never");
            Stage::Metaspace { replacement: single_char(walk, object, "replacement")?, strip_first: !never }
        }
        "WordPiece" => Stage::WordPiece {
            prefix: walk.short(object, "prefix")?.into(),
            cleanup: walk.flag(object, "cleanup", true)?,
        },
        "BPEDecoder" => {
            let suffix = walk.short(object, "suffix")?;
            walk.grow(usize::from(suffix.is_empty()) + 1)?;
            Stage::Bpe { suffix: suffix.into() }
        }
        _ => return Err(walk.corrupt("a decoder without stages")),
    });
    Ok(())
}

fn single_char(walk: &Walk, object: &Map<String, Value>, key: &str) -> Result<char> {
    let text = walk.text(object, key)?;
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(c), None) => Ok(c),
        _ => Err(walk.corrupt(&format!("{} is not one character", quoted(key)))),
    }
}

fn count(walk: &Walk, object: &Map<String, Value>, key: &str) -> Result<usize> {
    let n =
        object.get(key).and_then(Value::as_u64).ok_or_else(|| walk.corrupt(&format!("no count {}", quoted(key))))?;
    Ok(n as usize)
}
