//! A Hugging Face tokenizer, built from a tokenizer.json that may be hostile. Immutable once built.

mod abi;
mod file;
mod guarded;
mod model;
mod pipeline;
mod stream;

use std::sync::Arc;

use ahash::{AHashMap, AHashSet};
use tokenizers::{AddedToken, DecoderWrapper, Model, PostProcessorWrapper, TokenizerImpl};

use crate::abi::catching;
use crate::error::{quoted, Failure, Kind, Result};
use file::AddedTokenEntry;
use guarded::{GuardedNormalizer, GuardedPreTokenizer, TimeBudget};
use model::{LoadedModel, SharedModel, ID_LIMIT};
use stream::Stage;

const TEXT_LIMIT: usize = 4 << 20; // bytes of one text
                                   // Bytes that the pipeline could make of it. The library holds about 150 bytes for each while it works, a token for each
                                   // in the worst case, so this is some 5 GB.
const WORK_LIMIT: usize = 32 << 20;
const DECODED_LIMIT: usize = 256 << 20; // bytes that decoding could give
const IDS_LIMIT: usize = 4 << 20; // ids of one decode
const ADDED_LIMIT: usize = 1 << 20; // added tokens
const ADDED_TOKEN_LIMIT: usize = 4096; // bytes of one
const STACK: usize = 16 << 20; // bytes for the thread that loads: its parsers recurse with the (bounded) nesting

type Impl = TokenizerImpl<SharedModel, GuardedNormalizer, GuardedPreTokenizer, PostProcessorWrapper, DecoderWrapper>;

pub struct Tokenizer {
    /// Finds special tokens in texts.
    parsing: Impl,
    /// Does not know the special tokens, so that their text is like any other.
    plain: Impl,
    stages: Vec<Stage>,
    /// Ascending.
    special_ids: Vec<u32>,
    /// Special ids that plain text must not give: all but the unknown token's.
    forbidden: AHashSet<u32>,
    /// How many of those the post-processor adds by itself.
    forbidden_in_frame: usize,
    vocab_size: u32,
    /// How many times longer than the text what the model sees can be.
    growth: usize,
    /// Bytes of the longest token, and how many times longer the decoder can make it.
    longest_token: usize,
    decoder_growth: usize,
}

#[derive(Clone, Copy)]
pub struct EncodeOptions {
    pub add_special: bool,
    pub parse_special: bool,
}

impl Tokenizer {
    pub fn from_json(json: &[u8]) -> Result<Self> {
        std::thread::scope(|scope| {
            let build = || catching(Kind::CorruptData, || Self::build(json));
            let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, build);
            let thread = thread.map_err(|e| Failure::exhausted(format!("no thread to load the tokenizer: {e}")))?;
            thread.join().unwrap_or_else(|_| Err(Failure::new(Kind::Internal, "the loading thread died")))
        })
    }

    fn build(json: &[u8]) -> Result<Self> {
        let _budget = TimeBudget::for_text(json.len());
        let file = file::parse(json)?;
        let LoadedModel { model, max_id, unknown, longest } = model::load(file.model)?;
        let (normalizer, normalizer_growth) = file.normalizer.map(pipeline::normalizer).transpose()?.unzip();
        let (pre_tokenizer, pre_growth) = file.pre_tokenizer.map(pipeline::pre_tokenizer).transpose()?.unzip();
        let post_processor = file.post_processor.map(pipeline::post_processor).transpose()?;
        let decoder = pipeline::decoder(file.decoder)?;
        let entries = file.added_tokens.unwrap_or_default();
        check_added_tokens(&entries, &model)?;

        let added: AHashMap<String, u32> = entries.iter().map(|e| (e.content.clone(), e.id)).collect();
        let special: Vec<&AddedTokenEntry> = entries.iter().filter(|e| e.special).collect();
        let mut special_ids: Vec<u32> = special.iter().map(|e| e.id).collect();
        special_ids.sort_unstable();
        let forbidden = special.iter().filter(|e| Some(&e.content) != unknown.as_ref()).map(|e| e.id).collect();
        let longest = entries.iter().map(|e| e.content.len()).max().unwrap_or(0).max(longest);
        let last_id = entries.iter().map(|e| e.id).max().max(max_id);
        let model = SharedModel { model: Arc::new(model), added: Arc::new(added) };

        let assemble = |with_special: bool| -> Result<Impl> {
            let mut tokenizer = TokenizerImpl::new(model.clone());
            tokenizer.with_normalizer(normalizer.clone()).map_err(library)?;
            tokenizer.with_pre_tokenizer(pre_tokenizer.clone());
            tokenizer.with_post_processor(post_processor.clone());
            tokenizer.with_decoder(decoder.library.clone());
            let tokens = entries.iter().filter(|e| with_special || !e.special).map(added_token);
            tokenizer.add_tokens(tokens).map_err(library)?;
            Ok(tokenizer)
        };
        let mut tokenizer = Tokenizer {
            parsing: assemble(true)?,
            plain: assemble(false)?,
            stages: decoder.stages,
            special_ids,
            forbidden,
            forbidden_in_frame: 0,
            vocab_size: last_id.map_or(0, |id| id + 1),
            growth: normalizer_growth.unwrap_or(1) * pre_growth.unwrap_or(1),
            longest_token: longest + 1,
            decoder_growth: decoder.growth,
        };
        // Shows at once whether the post-processor's ids are ids of this vocabulary.
        let frame = tokenizer.encode("", EncodeOptions { add_special: true, parse_special: true })?;
        tokenizer.forbidden_in_frame = tokenizer.count_forbidden(&frame);
        Ok(tokenizer)
    }

    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>> {
        let limit = TEXT_LIMIT.min(WORK_LIMIT / self.growth);
        if text.len() > limit {
            return Err(Failure::argument(format!("the text has {} bytes; the limit is {limit}", text.len())));
        }
        let _budget = TimeBudget::for_text(text.len());
        let tokenizer = if options.parse_special { &self.parsing } else { &self.plain };
        let encoding = tokenizer
            .encode_fast(text, options.add_special)
            .map_err(|e| Failure::argument(format!("the text cannot be tokenised: {e}")))?;
        let ids = encoding.get_ids().to_vec();
        if let Some(id) = ids.iter().find(|id| **id >= self.vocab_size) {
            let size = self.vocab_size;
            return Err(Failure::corrupt(format!("the tokenizer made id {id}, but its vocabulary ends at {size}")));
        }
        // A model whose vocabulary holds the special tokens as ordinary words could still make them from text.
        let frame = if options.add_special { self.forbidden_in_frame } else { 0 };
        if !options.parse_special && self.count_forbidden(&ids) != frame {
            return Err(Failure::argument(
                "the text holds a special token that this tokenizer cannot encode as plain text",
            ));
        }
        Ok(ids)
    }

    fn count_forbidden(&self, ids: &[u32]) -> usize {
        ids.iter().filter(|id| self.forbidden.contains(id)).count()
    }

    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        if ids.len() > IDS_LIMIT {
            return Err(Failure::argument(format!("{} ids to decode; the limit is {IDS_LIMIT}", ids.len())));
        }
        if ids.is_empty() {
            return Ok(String::new());
        }
        // An upper bound first: it is cheap, and real tokenizers stay below it.
        let limit = DECODED_LIMIT / self.decoder_growth;
        if ids.len() * self.longest_token > limit {
            let bytes: usize = ids.iter().filter_map(|id| self.token(*id)).map(|t| t.len() + 1).sum();
            if bytes > limit {
                return Err(Failure::argument(format!("{} ids are {bytes} bytes; the limit is {limit}", ids.len())));
            }
        }
        self.parsing.decode(ids, skip_special).map_err(library)
    }

    /// The token as the vocabulary spells it.
    pub fn token(&self, id: u32) -> Option<String> {
        self.parsing.id_to_token(id)
    }

    pub fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        self.token(id).map(|t| stream::token_bytes(&self.stages, &t))
    }

    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.parsing.token_to_id(token)
    }

    /// By spelling, as the library's decoder decides it.
    pub fn is_special(&self, token: &str) -> bool {
        self.parsing.get_added_vocabulary().is_special_token(token)
    }

    pub fn special_ids(&self) -> &[u32] {
        &self.special_ids
    }

    /// The largest id + 1.
    pub fn vocab_size(&self) -> u32 {
        self.vocab_size
    }

    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }
}

fn library(e: tokenizers::Error) -> Failure {
    Failure::corrupt(format!("tokenizer.json: {e}"))
}

fn added_token(e: &AddedTokenEntry) -> AddedToken {
    AddedToken::from(e.content.clone(), e.special)
        .single_word(e.single_word)
        .lstrip(e.lstrip)
        .rstrip(e.rstrip)
        .normalized(e.normalized)
}

/// The library ignores the ids that a file declares for its added tokens: it takes the vocabulary's id or else counts
/// on from the vocabulary's size. A file where that gives other ids than it declares is refused, since the two readings
/// would disagree on what the model sees.
fn check_added_tokens(entries: &[AddedTokenEntry], model: &impl Model) -> Result<()> {
    if entries.len() > ADDED_LIMIT {
        return Err(Failure::exhausted(format!("{} added tokens; the limit is {ADDED_LIMIT}", entries.len())));
    }
    let mut next = model.get_vocab_size() as u32;
    let mut contents = AHashSet::with_capacity(entries.len());
    let mut ids = AHashSet::with_capacity(entries.len());
    for e in entries {
        let name = quoted(&e.content);
        if e.content.is_empty() || e.content.len() > ADDED_TOKEN_LIMIT {
            let n = e.content.len();
            return Err(Failure::corrupt(format!(
                "added token {name} has {n} bytes; 1 to {ADDED_TOKEN_LIMIT} are allowed"
            )));
        }
        if !contents.insert(e.content.as_str()) || !ids.insert(e.id) || e.id >= ID_LIMIT {
            return Err(Failure::corrupt(format!(
                "added token {name}: its text or its id {} is taken or too large",
                e.id
            )));
        }
        let id = model.token_to_id(&e.content).unwrap_or_else(|| {
            next += 1;
            next - 1
        });
        if id != e.id {
            return Err(Failure::corrupt(format!("added token {name} declares id {}, but gets id {id}", e.id)));
        }
        match model.id_to_token(id) {
            Some(other) if other != e.content => {
                let other = quoted(&other);
                return Err(Failure::corrupt(format!(
                    "added token {name} has id {id}, which is that of token {other}"
                )));
            }
            _ => {}
        }
    }
    Ok(())
}
