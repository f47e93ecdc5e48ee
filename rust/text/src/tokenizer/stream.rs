//! Decoding token by token.
//!
//! A decoder of the library maps a list of tokens to a list of strings, which are then joined. Here each is a stage
//! that takes tokens one at a time, passes on what no later token can change, and holds the rest: bytes of an
//! unfinished character, a run of byte tokens (one bad byte turns the whole run into U+FFFD), a token whose text depends
//! on whether it is the last. Pushing everything and finishing gives the library's one-shot text, byte for byte.
//!
//! After a stage that joins (ByteLevel, Fuse) the library's later stages see one token. What they see here are
//! fragments of it; the few stages that could not tell the difference may follow, others make the decoder
//! "not streamable": then everything is held until the end, which is slow to show but still right.

use std::sync::{Arc, LazyLock};

use tokenizers::decoders::wordpiece::cleanup;

use super::Tokenizer;
use crate::error::Result;

#[derive(Clone, Debug, PartialEq)]
pub enum Stage {
    ByteLevel,
    ByteFallback,
    Fuse,
    Replace {
        pattern: String,
        content: String,
    },
    Strip {
        content: char,
        start: usize,
    },
    Metaspace {
        replacement: char,
        strip_first: bool,
    },
    WordPiece {
        prefix: String,
        cleanup: bool,
    },
    Bpe {
        suffix: String,
    },
    /// No decoder: the library joins tokens with spaces.
    JoinWithSpaces,
}

/// Whether `stages` can follow each other on fragments.
fn streamable(stages: &[Stage]) -> bool {
    let mut joined = false;
    for stage in stages {
        let fits = match stage {
            Stage::Fuse | Stage::Strip { .. } | Stage::Metaspace { .. } => true,
            Stage::Replace { pattern, .. } => pattern.chars().count() == 1,
            Stage::WordPiece { cleanup, .. } => !cleanup,
            Stage::ByteLevel | Stage::ByteFallback | Stage::Bpe { .. } | Stage::JoinWithSpaces => false,
        };
        if joined && !fits {
            return false;
        }
        joined |= matches!(stage, Stage::ByteLevel | Stage::Fuse);
    }
    true
}

// ---- bytes of the byte-level alphabet ------------------------------------------------------------------------------

/// The byte-level alphabet: printable Latin-1 stands for itself, the other 68 bytes for U+0100 and up, in order.
static BYTE_OF_CHAR: LazyLock<[Option<u8>; 512]> = LazyLock::new(|| {
    let mut table = [None; 512];
    let mut next = 256;
    for byte in 0..=255u8 {
        let printable = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
        let slot = if printable { byte as usize } else { next };
        next += usize::from(!printable);
        table[slot] = Some(byte);
    }
    table
});

/// Appends the bytes that a token of the byte-level alphabet stands for; any other token stands for itself.
fn push_byte_level(token: &str, out: &mut Vec<u8>) {
    let start = out.len();
    for c in token.chars() {
        match BYTE_OF_CHAR.get(c as usize).copied().flatten() {
            Some(byte) => out.push(byte),
            None => {
                out.truncate(start);
                out.extend_from_slice(token.as_bytes());
                return;
            }
        }
    }
}

/// The byte of a token like `<0x41>`.
fn fallback_byte(token: &str) -> Option<u8> {
    let hex = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (token.len() == 6).then(|| u8::from_str_radix(hex, 16).ok()).flatten()
}

/// The bytes that a token contributes to a text when it is neither first nor last in it.
pub fn token_bytes(stages: &[Stage], token: &str) -> Vec<u8> {
    let mut text = token.to_owned();
    let mut joined = false;
    for stage in stages {
        match stage {
            Stage::ByteLevel => {
                let mut bytes = Vec::new();
                push_byte_level(&text, &mut bytes);
                return bytes;
            }
            Stage::ByteFallback => {
                if let Some(byte) = fallback_byte(&text) {
                    return vec![byte];
                }
            }
            Stage::Fuse => joined = true,
            Stage::Replace { pattern, content } => text = text.replace(pattern.as_str(), content),
            Stage::Strip { content, start } if !joined => text = strip(&text, *content, *start).0.to_owned(),
            Stage::Strip { .. } => {}
            Stage::Metaspace { replacement, .. } => text = text.replace(*replacement, " "),
            Stage::WordPiece { prefix, cleanup: clean } => text = word_piece(&text, false, prefix, *clean),
            Stage::Bpe { suffix } => text = text.replace(suffix.as_str(), " "),
            Stage::JoinWithSpaces => text.insert(0, ' '),
        }
    }
    text.into_bytes()
}

/// Cuts up to `count` leading `content`; returns the rest and how many more it could have cut.
fn strip(text: &str, content: char, count: usize) -> (&str, usize) {
    let mut rest = text;
    let mut left = count;
    while left > 0 {
        match rest.strip_prefix(content) {
            Some(r) => (rest, left) = (r, left - 1),
            None if rest.is_empty() => break,
            None => left = 0,
        }
    }
    (rest, left)
}

fn word_piece(token: &str, first: bool, prefix: &str, clean: bool) -> String {
    let text = match token.strip_prefix(prefix) {
        _ if first => token.to_owned(),
        Some(rest) => rest.to_owned(),
        None => format!(" {token}"),
    };
    if clean {
        cleanup(&text)
    } else {
        text
    }
}

// ---- stages with state ---------------------------------------------------------------------------------------------

struct Node {
    stage: Stage,
    /// It sees fragments of one token.
    joined: bool,
    /// The first token has passed.
    started: bool,
    /// ByteLevel: bytes of an unfinished character. ByteFallback: the run of byte tokens.
    bytes: Vec<u8>,
    /// ByteFallback: bytes of the run known to be whole characters.
    valid: usize,
    /// ByteFallback: the run holds a bad byte, so each of its bytes gives U+FFFD.
    broken: bool,
    /// Bpe: the token that may be the last.
    held: Option<String>,
    /// Strip on fragments: how many it may still cut.
    left: usize,
}

impl Node {
    fn new(stage: Stage, joined: bool) -> Self {
        let left = if let Stage::Strip { start, .. } = stage { start } else { 0 };
        Node { stage, joined, started: false, bytes: vec![], valid: 0, broken: false, held: None, left }
    }

    /// What it does to the beginning of a text alone is over.
    fn under_way(&self) -> bool {
        match self.stage {
            Stage::Strip { .. } => !self.joined || self.left == 0,
            Stage::Metaspace { .. } | Stage::WordPiece { .. } | Stage::JoinWithSpaces => self.joined || self.started,
            _ => true,
        }
    }
}

const REPLACEMENT: &str = "\u{FFFD}";

fn feed(nodes: &mut [Node], token: &str, out: &mut String) {
    let Some((node, rest)) = nodes.split_first_mut() else {
        out.push_str(token);
        return;
    };
    let first = !node.started || node.joined;
    node.started = true;
    match &node.stage {
        Stage::Fuse => feed(rest, token, out),
        Stage::Replace { pattern, content } => feed(rest, &token.replace(pattern.as_str(), content), out),
        Stage::Strip { content, start } => {
            let (text, left) = strip(token, *content, if node.joined { node.left } else { *start });
            node.left = left;
            feed(rest, text, out);
        }
        Stage::Metaspace { replacement, strip_first } => {
            let space = if first && *strip_first { "" } else { " " };
            feed(rest, &token.replace(*replacement, space), out);
        }
        Stage::WordPiece { prefix, cleanup } => feed(rest, &word_piece(token, first, prefix, *cleanup), out),
        Stage::JoinWithSpaces if first => feed(rest, token, out),
        Stage::JoinWithSpaces => feed(rest, &format!(" {token}"), out),
        Stage::Bpe { suffix } => {
            if let Some(previous) = node.held.replace(token.to_owned()) {
                feed(rest, &previous.replace(suffix.as_str(), " "), out);
            }
        }
        Stage::ByteLevel => {
            push_byte_level(token, &mut node.bytes);
            pass_characters(node, rest, out);
        }
        Stage::ByteFallback => match fallback_byte(token) {
            Some(byte) => push_fallback(node, rest, byte, out),
            None => {
                end_run(node, rest, out);
                feed(rest, token, out);
            }
        },
    }
}

fn finish(nodes: &mut [Node], out: &mut String) {
    for i in 0..nodes.len() {
        let (head, rest) = nodes.split_at_mut(i + 1);
        let node = &mut head[i];
        match &node.stage {
            Stage::Bpe { suffix } => {
                if let Some(last) = node.held.take() {
                    feed(rest, &last.replace(suffix.as_str(), ""), out);
                }
            }
            // An unfinished character at the end gives one U+FFFD, as in from_utf8_lossy.
            Stage::ByteLevel if !node.bytes.is_empty() => {
                node.bytes.clear();
                feed(rest, REPLACEMENT, out);
            }
            Stage::ByteFallback => end_run(node, rest, out),
            _ => {}
        }
    }
}

/// Passes on every whole character and U+FFFD for every bad sequence, as from_utf8_lossy does; keeps an unfinished
/// character.
fn pass_characters(node: &mut Node, rest: &mut [Node], out: &mut String) {
    let bytes = std::mem::take(&mut node.bytes);
    let mut tail = &bytes[..];
    loop {
        match std::str::from_utf8(tail) {
            Ok(text) => {
                if !text.is_empty() {
                    feed(rest, text, out);
                }
                return;
            }
            Err(e) => {
                let (good, bad) = tail.split_at(e.valid_up_to());
                if !good.is_empty() {
                    feed(rest, std::str::from_utf8(good).unwrap_or_default(), out);
                }
                match e.error_len() {
                    Some(n) => {
                        feed(rest, REPLACEMENT, out);
                        tail = &bad[n..];
                    }
                    None => {
                        node.bytes = bad.to_vec();
                        return;
                    }
                }
            }
        }
    }
}

fn push_fallback(node: &mut Node, rest: &mut [Node], byte: u8, out: &mut String) {
    if node.broken {
        return feed(rest, REPLACEMENT, out);
    }
    node.bytes.push(byte);
    match std::str::from_utf8(&node.bytes[node.valid..]) {
        Ok(_) => node.valid = node.bytes.len(),
        Err(e) if e.error_len().is_some() => {
            node.broken = true;
            give_up_run(node, rest, out);
        }
        Err(_) => {}
    }
}

fn give_up_run(node: &mut Node, rest: &mut [Node], out: &mut String) {
    for _ in 0..std::mem::take(&mut node.bytes).len() {
        feed(rest, REPLACEMENT, out);
    }
    node.valid = 0;
}

fn end_run(node: &mut Node, rest: &mut [Node], out: &mut String) {
    if node.valid < node.bytes.len() {
        give_up_run(node, rest, out);
    } else if !node.bytes.is_empty() {
        let bytes = std::mem::take(&mut node.bytes);
        feed(rest, std::str::from_utf8(&bytes).unwrap_or_default(), out);
    }
    node.valid = 0;
    node.broken = false;
}

// ---- the stream ----------------------------------------------------------------------------------------------------

pub struct Stream {
    tokenizer: Arc<Tokenizer>,
    skip_special: bool,
    nodes: Vec<Node>,
    /// All ids, when the decoder is not streamable.
    held: Option<Vec<u32>>,
    /// And the ids before them, of which no text is given.
    context: Vec<u32>,
    out: String,
}

/// Ids of a prompt that are tried, until some make a text.
const MOST_CONTEXT: usize = 16;

impl Stream {
    pub fn new(tokenizer: Arc<Tokenizer>, skip_special: bool) -> Self {
        let stages = tokenizer.stages();
        let mut joined = false;
        let mut nodes = Vec::new();
        for stage in stages {
            nodes.push(Node::new(stage.clone(), joined));
            joined |= matches!(stage, Stage::ByteLevel | Stage::Fuse);
        }
        let held = (!streamable(stages)).then(Vec::new);
        Stream { tokenizer, skip_special, nodes, held, context: vec![], out: String::new() }
    }

    /// The text that `id` makes certain.
    pub fn push(&mut self, id: u32) -> &str {
        self.out.clear();
        if let Some(ids) = &mut self.held {
            ids.push(id);
        } else if let Some(token) = self.tokenizer.token(id) {
            if !(self.skip_special && self.tokenizer.is_special(&token)) {
                feed(&mut self.nodes, &token, &mut self.out);
            }
        }
        &self.out
    }

    /// The text begins after `ids`, a prompt: what a decoder does only at the beginning of a text is over. Nothing of the
    /// prompt is given, nor held. For a stream that is as new.
    pub fn follow(&mut self, ids: &[u32]) -> Result<()> {
        if self.held.is_some() {
            // As many as make a text; what a joined text does to them cannot be known before its end.
            for n in 1..=ids.len().min(MOST_CONTEXT) {
                self.context = ids[..n].to_vec();
                if !self.tokenizer.decode(&self.context, self.skip_special)?.is_empty() {
                    break;
                }
            }
            return Ok(());
        }
        for &id in ids {
            if self.nodes.iter().all(Node::under_way) {
                break;
            }
            if let Some(token) = self.tokenizer.token(id) {
                if !(self.skip_special && self.tokenizer.is_special(&token)) {
                    feed(&mut self.nodes, &token, &mut self.out);
                    finish(&mut self.nodes, &mut self.out);
                }
            }
        }
        Ok(())
    }

    /// The rest of the text. The stream is as new afterwards.
    pub fn finish(&mut self) -> Result<&str> {
        self.out.clear();
        if let Some(ids) = self.held.take() {
            self.held = Some(vec![]);
            let context = std::mem::take(&mut self.context);
            let before = self.tokenizer.decode(&context, self.skip_special)?;
            let all = self.tokenizer.decode(&[context, ids].concat(), self.skip_special)?;
            self.out = all.strip_prefix(&before).unwrap_or(&all).to_owned();
        } else {
            finish(&mut self.nodes, &mut self.out);
            for node in &mut self.nodes {
                *node = Node::new(node.stage.clone(), node.joined);
            }
        }
        Ok(&self.out)
    }
}
