//! The model section of a tokenizer.json: vocabulary, merges and scores, checked before the library sees them.
//!
//! The library trusts some of what it reads (a continuing prefix is cut off merges unchecked, ids may be as large as
//! u32), so the vocabulary is read here and handed to its builders.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ahash::{AHashMap, AHashSet};
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tokenizers::models::bpe::BpeBuilder;
use tokenizers::models::unigram::Unigram;
use tokenizers::models::wordlevel::WordLevelBuilder;
use tokenizers::models::wordpiece::WordPieceBuilder;
use tokenizers::models::TrainerWrapper;
use tokenizers::{Model, ModelWrapper, Token};

use crate::error::{quoted, Failure, Result};

pub const ID_LIMIT: u32 = 1 << 22; // 4 Mi ids; the largest vocabularies in use have 256 Ki
const TOKEN_LIMIT: usize = 16 << 10; // bytes of one token
const WORD_LIMIT: usize = 4096; // characters of one WordPiece word (its search is quadratic)

/// One model under several tokenizers, with the declared ids of the added tokens, so that each tokenizer gives them
/// the same ids whichever of them it knows.
#[derive(Clone)]
pub struct SharedModel {
    pub model: Arc<ModelWrapper>,
    pub added: Arc<AHashMap<String, u32>>,
}

impl Model for SharedModel {
    type Trainer = TrainerWrapper;
    fn tokenize(&self, sequence: &str) -> tokenizers::Result<Vec<Token>> {
        self.model.tokenize(sequence)
    }
    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.added.get(token).copied().or_else(|| self.model.token_to_id(token))
    }
    fn id_to_token(&self, id: u32) -> Option<String> {
        self.model.id_to_token(id)
    }
    fn get_vocab(&self) -> HashMap<String, u32> {
        self.model.get_vocab()
    }
    fn get_vocab_size(&self) -> usize {
        self.model.get_vocab_size()
    }
    fn save(&self, folder: &Path, prefix: Option<&str>) -> tokenizers::Result<Vec<PathBuf>> {
        self.model.save(folder, prefix)
    }
    fn get_trainer(&self) -> TrainerWrapper {
        self.model.get_trainer()
    }
}

/// What the rest of the loading needs to know of a model.
pub struct LoadedModel {
    pub model: ModelWrapper,
    pub max_id: Option<u32>,
    /// The token for text that the vocabulary does not cover.
    pub unknown: Option<String>,
    /// Bytes of the longest token.
    pub longest: usize,
}

pub fn load(raw: &RawValue) -> Result<LoadedModel> {
    #[derive(Deserialize)]
    struct Head<'a> {
        #[serde(rename = "type", borrow)]
        kind: Option<Cow<'a, str>>,
    }
    let head: Head = section(raw)?;
    // Files from before the models were tagged exist for BPE only.
    match head.kind.as_deref().unwrap_or("BPE") {
        "BPE" => load_bpe(section(raw)?),
        "WordPiece" => load_word_piece(section(raw)?),
        "WordLevel" => load_word_level(section(raw)?),
        "Unigram" => load_unigram(section(raw)?),
        other => Err(Failure::unsupported(format!(
            "tokenizer model {} is not supported; BPE, WordPiece, WordLevel and Unigram are",
            quoted(other)
        ))),
    }
}

fn section<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Result<T> {
    serde_json::from_str(raw.get()).map_err(|e| Failure::corrupt(format!("tokenizer.json, model: {e}")))
}

fn library(e: tokenizers::Error) -> Failure {
    Failure::corrupt(format!("tokenizer.json, model: {e}"))
}

// ---- vocabulary ----------------------------------------------------------------------------------------------------

/// A JSON object token -> id whose tokens and ids are unique. The ids need not be dense.
struct Vocab {
    ids: AHashMap<String, u32>,
    max_id: Option<u32>,
    longest: usize,
}

impl<'de> Deserialize<'de> for Vocab {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct VocabVisitor;
        impl<'de> Visitor<'de> for VocabVisitor {
            type Value = Vocab;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object from tokens to ids")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Vocab, A::Error> {
                let mut ids: AHashMap<String, u32> = AHashMap::new();
                let mut seen = IdSet::default();
                let mut longest = 0;
                while let Some((token, id)) = map.next_entry::<String, u64>()? {
                    if id >= ID_LIMIT as u64 {
                        let t = quoted(&token);
                        return Err(de::Error::custom(format!("token {t} has id {id}; the limit is {ID_LIMIT}")));
                    }
                    if token.len() > TOKEN_LIMIT {
                        let t = quoted(&token);
                        let n = token.len();
                        return Err(de::Error::custom(format!("token {t} has {n} bytes; the limit is {TOKEN_LIMIT}")));
                    }
                    longest = longest.max(token.len());
                    if !seen.insert(id as u32) {
                        return Err(de::Error::custom(format!("token {} has id {id}, which is taken", quoted(&token))));
                    }
                    if let Some(old) = ids.insert(token, id as u32) {
                        return Err(de::Error::custom(format!("one token has two ids, {old} and {id}")));
                    }
                }
                Ok(Vocab { ids, max_id: seen.max, longest })
            }
        }
        deserializer.deserialize_map(VocabVisitor)
    }
}

/// A bit set over ids below ID_LIMIT.
#[derive(Default)]
struct IdSet {
    words: Vec<u64>,
    max: Option<u32>,
}

impl IdSet {
    fn insert(&mut self, id: u32) -> bool {
        let (word, bit) = ((id / 64) as usize, 1u64 << (id % 64));
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let fresh = self.words[word] & bit == 0;
        self.words[word] |= bit;
        self.max = self.max.max(Some(id));
        fresh
    }
}

// ---- BPE -----------------------------------------------------------------------------------------------------------

/// `dropout` is left out on purpose: it is a device of training and would make ids random.
#[derive(Deserialize)]
struct BpeFile {
    unk_token: Option<String>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    fuse_unk: Option<bool>,
    byte_fallback: Option<bool>,
    ignore_merges: Option<bool>,
    vocab: Vocab,
    merges: Vec<Merge>,
}

struct Merge(String, String);

impl<'de> Deserialize<'de> for Merge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct MergeVisitor;
        impl<'de> Visitor<'de> for MergeVisitor {
            type Value = Merge;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a merge: \"left right\" or [\"left\", \"right\"]")
            }
            fn visit_str<E: de::Error>(self, line: &str) -> std::result::Result<Merge, E> {
                match line.split_once(' ') {
                    Some((a, b)) if !b.contains(' ') => Ok(Merge(a.into(), b.into())),
                    _ => Err(E::custom(format!("merge {} is not two tokens and a space", quoted(line)))),
                }
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Merge, A::Error> {
                match (seq.next_element()?, seq.next_element()?, seq.next_element::<de::IgnoredAny>()?) {
                    (Some(a), Some(b), None) => Ok(Merge(a, b)),
                    _ => Err(de::Error::custom("a merge is not two tokens")),
                }
            }
        }
        deserializer.deserialize_any(MergeVisitor)
    }
}

fn load_bpe(file: BpeFile) -> Result<LoadedModel> {
    let prefix = file.continuing_subword_prefix.as_deref().unwrap_or("");
    let longest = file.vocab.longest;
    let mut merges = Vec::with_capacity(file.merges.len());
    for (rank, Merge(a, b)) in file.merges.into_iter().enumerate() {
        let broken = |what: &str| {
            Failure::corrupt(format!("tokenizer.json, merge {rank} ({} + {}) {what}", quoted(&a), quoted(&b)))
        };
        let tail = b.strip_prefix(prefix).filter(|t| !t.is_empty() && !a.is_empty());
        let tail = tail.ok_or_else(|| broken("adds nothing"))?;
        // The library looks the three tokens up, and says which is not there, but not before it has joined them in a
        // buffer as long as the longest token.
        if a.len() + tail.len() > longest {
            return Err(broken("is longer than any token of the vocabulary"));
        }
        merges.push((a, b));
    }
    check_unknown(&file.unk_token, &file.vocab)?;
    let max_id = file.vocab.max_id;
    let mut builder = BpeBuilder::new()
        .vocab_and_merges(file.vocab.ids, merges)
        .fuse_unk(file.fuse_unk.unwrap_or(false))
        .byte_fallback(file.byte_fallback.unwrap_or(false))
        .ignore_merges(file.ignore_merges.unwrap_or(false));
    if let Some(t) = &file.unk_token {
        builder = builder.unk_token(t.clone());
    }
    if let Some(t) = file.continuing_subword_prefix {
        builder = builder.continuing_subword_prefix(t);
    }
    if let Some(t) = file.end_of_word_suffix {
        builder = builder.end_of_word_suffix(t);
    }
    let model = ModelWrapper::BPE(builder.build().map_err(library)?);
    Ok(LoadedModel { model, max_id, unknown: file.unk_token, longest })
}

fn check_unknown(token: &Option<String>, vocab: &Vocab) -> Result<()> {
    match token {
        Some(t) if !vocab.ids.contains_key(t) => {
            Err(Failure::corrupt(format!("unk_token {} is not in the vocabulary", quoted(t))))
        }
        _ => Ok(()),
    }
}

// ---- the others ----------------------------------------------------------------------------------------------------

#[derive(Deserialize)]
struct WordPieceFile {
    unk_token: String,
    continuing_subword_prefix: String,
    max_input_chars_per_word: usize,
    vocab: Vocab,
}

fn load_word_piece(file: WordPieceFile) -> Result<LoadedModel> {
    if file.max_input_chars_per_word > WORD_LIMIT {
        return Err(Failure::unsupported(format!(
            "max_input_chars_per_word is {}; the limit is {WORD_LIMIT}",
            file.max_input_chars_per_word
        )));
    }
    let unknown = Some(file.unk_token.clone());
    check_unknown(&unknown, &file.vocab)?;
    let (max_id, longest) = (file.vocab.max_id, file.vocab.longest);
    let model = WordPieceBuilder::new()
        .vocab(file.vocab.ids)
        .unk_token(file.unk_token)
        .continuing_subword_prefix(file.continuing_subword_prefix)
        .max_input_chars_per_word(file.max_input_chars_per_word)
        .build()
        .map_err(library)?;
    Ok(LoadedModel { model: ModelWrapper::WordPiece(model), max_id, unknown, longest })
}

#[derive(Deserialize)]
struct WordLevelFile {
    unk_token: String,
    vocab: Vocab,
}

fn load_word_level(file: WordLevelFile) -> Result<LoadedModel> {
    let (max_id, longest) = (file.vocab.max_id, file.vocab.longest);
    let unknown = Some(file.unk_token.clone());
    let model = WordLevelBuilder::new().vocab(file.vocab.ids).unk_token(file.unk_token).build().map_err(library)?;
    Ok(LoadedModel { model: ModelWrapper::WordLevel(model), max_id, unknown, longest })
}

#[derive(Deserialize)]
struct UnigramFile {
    unk_id: Option<usize>,
    byte_fallback: Option<bool>,
    vocab: Vec<(String, f64)>,
}

fn load_unigram(file: UnigramFile) -> Result<LoadedModel> {
    let count = file.vocab.len();
    if count >= ID_LIMIT as usize {
        return Err(Failure::exhausted(format!("{count} tokens; the limit is {ID_LIMIT}")));
    }
    let mut seen = AHashSet::with_capacity(count);
    for (id, (token, _)) in file.vocab.iter().enumerate() {
        if token.len() > TOKEN_LIMIT {
            let n = token.len();
            return Err(Failure::corrupt(format!("token {id} has {n} bytes; the limit is {TOKEN_LIMIT}")));
        }
        if !seen.insert(token.as_str()) {
            return Err(Failure::corrupt(format!("token {} is there twice; its second id is {id}", quoted(token))));
        }
    }
    let longest = file.vocab.iter().map(|(t, _)| t.len()).max().unwrap_or(0);
    let unknown = file.unk_id.and_then(|id| file.vocab.get(id)).map(|(t, _)| t.clone());
    let model = Unigram::from(file.vocab, file.unk_id, file.byte_fallback.unwrap_or(false)).map_err(library)?;
    let max_id = (count as u32).checked_sub(1);
    Ok(LoadedModel { model: ModelWrapper::Unigram(model), max_id, unknown, longest })
}
