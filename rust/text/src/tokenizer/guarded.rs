//! Pieces of a tokenizer's pipeline whose cost a file could choose, rebuilt so that it is bounded.
//!
//! `tokenizers` runs the regular expressions of a file through fancy-regex and, when one gives up, silently leaves the
//! rest of the text unsplit: other ids, and no word about it. Here giving up is an error, and a time budget per text
//! stops an expression that is slow at every position. Everything else is the library's own code.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fancy_regex::{Regex, RegexBuilder};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::tokenizer::pattern::{Invert, Pattern};
use tokenizers::{
    NormalizedString, Normalizer, NormalizerWrapper, Offsets, PreTokenizedString, PreTokenizer, PreTokenizerWrapper,
    SplitDelimiterBehavior,
};

use crate::error::{quoted, Failure, Result};

const PATTERN_LIMIT: usize = 4096; // bytes; the longest in use are about 600
const BACKTRACK_LIMIT: usize = 1_000_000; // steps for one match
const PROGRAM_LIMIT: usize = 4 << 20; // bytes for one delegated sub-expression

/// The GPT-2 expression that `ByteLevel` applies when `use_regex` is set.
pub const GPT2_PATTERN: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

thread_local! {
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// While it lives, regular expressions on this thread stop at a deadline that no sound tokenizer comes near: 2 s plus
/// 10 us per byte, where splitting takes 0.1 us per byte.
pub struct TimeBudget;

impl TimeBudget {
    pub fn for_text(bytes: usize) -> Self {
        let budget = Duration::from_secs(2) + Duration::from_micros(10) * bytes.min(u32::MAX as usize) as u32;
        DEADLINE.with(|d| d.set(Some(Instant::now() + budget)));
        TimeBudget
    }
    fn spent() -> bool {
        DEADLINE.with(|d| d.get().is_some_and(|t| Instant::now() > t))
    }
}

impl Drop for TimeBudget {
    fn drop(&mut self) {
        DEADLINE.with(|d| d.set(None));
    }
}

fn check_time() -> tokenizers::Result<()> {
    if TimeBudget::spent() {
        return Err("the tokenizer's regular expression is too slow on this text".into());
    }
    Ok(())
}

#[derive(Debug)]
pub struct GuardedRegex {
    regex: Regex,
}

impl GuardedRegex {
    pub fn new(pattern: &str) -> Result<Self> {
        if pattern.len() > PATTERN_LIMIT {
            return Err(Failure::unsupported(format!(
                "a regular expression of {} bytes; the limit is {PATTERN_LIMIT}",
                pattern.len()
            )));
        }
        let regex = RegexBuilder::new(pattern)
            .backtrack_limit(BACKTRACK_LIMIT)
            .delegate_size_limit(PROGRAM_LIMIT)
            .build()
            .map_err(|e| Failure::corrupt(format!("regular expression {}: {e}", quoted(pattern))))?;
        Ok(GuardedRegex { regex })
    }
    pub fn literal(text: &str) -> Result<Self> {
        Self::new(&fancy_regex::escape(text))
    }
}

impl Pattern for &GuardedRegex {
    fn find_matches(&self, inside: &str) -> tokenizers::Result<Vec<(Offsets, bool)>> {
        if inside.is_empty() {
            return Ok(vec![((0, 0), false)]);
        }
        // At the start too: a file may cut the text into many pieces first.
        check_time()?;
        let mut previous = 0;
        let mut splits = Vec::new();
        for (i, found) in self.regex.find_iter(inside).enumerate() {
            let found = found.map_err(|e| format!("the tokenizer's regular expression gave up on this text: {e}"))?;
            if i % 16 == 15 {
                check_time()?;
            }
            if previous != found.start() {
                splits.push(((previous, found.start()), false));
            }
            splits.push(((found.start(), found.end()), true));
            previous = found.end();
        }
        if previous != inside.len() {
            splits.push(((previous, inside.len()), false));
        }
        Ok(splits)
    }
}

#[derive(Clone, Debug)]
pub enum GuardedNormalizer {
    Library(NormalizerWrapper),
    Replace { pattern: Arc<GuardedRegex>, content: String },
    Sequence(Vec<GuardedNormalizer>),
}

impl Normalizer for GuardedNormalizer {
    fn normalize(&self, text: &mut NormalizedString) -> tokenizers::Result<()> {
        match self {
            Self::Library(n) => n.normalize(text),
            Self::Replace { pattern, content } => text.replace(&**pattern, content),
            Self::Sequence(all) => all.iter().try_for_each(|n| n.normalize(text)),
        }
    }
}

#[derive(Clone, Debug)]
pub enum GuardedPreTokenizer {
    Library(PreTokenizerWrapper),
    Split {
        pattern: Arc<GuardedRegex>,
        behavior: SplitDelimiterBehavior,
        invert: bool,
    },
    /// `ByteLevel` with `use_regex`: the same steps with the guarded expression.
    Gpt2 {
        pattern: Arc<GuardedRegex>,
        add_prefix_space: bool,
    },
    Sequence(Vec<GuardedPreTokenizer>),
}

impl PreTokenizer for GuardedPreTokenizer {
    fn pre_tokenize(&self, text: &mut PreTokenizedString) -> tokenizers::Result<()> {
        match self {
            Self::Library(p) => p.pre_tokenize(text),
            Self::Split { pattern, behavior, invert: false } => text.split(|_, s| s.split(&**pattern, *behavior)),
            Self::Split { pattern, behavior, invert: true } => {
                text.split(|_, s| s.split(Invert(&**pattern), *behavior))
            }
            Self::Gpt2 { pattern, add_prefix_space } => {
                text.split(|_, mut s| {
                    if *add_prefix_space && !s.get().starts_with(' ') {
                        s.prepend(" ");
                    }
                    s.split(&**pattern, SplitDelimiterBehavior::Isolated)
                })?;
                ByteLevel::new(false, true, false).pre_tokenize(text)
            }
            Self::Sequence(all) => all.iter().try_for_each(|p| p.pre_tokenize(text)),
        }
    }
}
