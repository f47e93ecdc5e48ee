/* The C ABI of the text library (rust/text). C++ code uses src/text/, which wraps it.
 *
 * Results: 0, or a kind of failure with a one-line message in |error| (which may be null; free it when filled). Outputs
 * are written on success only. No panic and no exception crosses this boundary. Text is UTF-8; other bytes are refused.
 * Arguments of type bool are C's. A tokenizer does not change after it is made and may be used from any number of
 * threads; a stream belongs to one thread at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  kSpyreTextOk = 0,
  kSpyreTextInvalidArgument = 1,   /* the text or the call is wrong */
  kSpyreTextCorruptData = 2,       /* the file is damaged or contradicts itself */
  kSpyreTextUnsupported = 3,       /* well-formed, but not read here */
  kSpyreTextResourceExhausted = 4, /* a limit was reached */
  kSpyreTextInternal = 5           /* a bug */
};

/* Owned by the caller: give them back to the free function of their kind. */
typedef struct {
  uint8_t* data;
  size_t size;
} SpyreTextBytes;
typedef struct {
  uint32_t* data;
  size_t size;
} SpyreTextIds;
void spyre_text_bytes_free(SpyreTextBytes* bytes);
void spyre_text_ids_free(SpyreTextIds* ids);

/* Borrowed from a stream, until its next call. */
typedef struct {
  const uint8_t* data;
  size_t size;
} SpyreTextView;

/* ---- tokenizer ---- */

typedef struct SpyreTextTokenizer SpyreTextTokenizer;

/* Reads the text of a Hugging Face tokenizer.json. Its truncation, padding and BPE dropout are ignored. */
int spyre_text_tokenizer_new(const uint8_t* json, size_t size, SpyreTextTokenizer** out, SpyreTextBytes* error);
void spyre_text_tokenizer_free(SpyreTextTokenizer* tokenizer);

/* |add_special|: let the file's post-processor add what it adds (a BOS, [CLS] and [SEP]). |parse_special|: find special
 * tokens in the text; without it their text is tokenised like any other. */
int spyre_text_encode(const SpyreTextTokenizer* tokenizer, const uint8_t* text, size_t size, bool add_special,
                      bool parse_special, SpyreTextIds* out, SpyreTextBytes* error);

/* Ids that are not in the vocabulary give nothing. */
int spyre_text_decode(const SpyreTextTokenizer* tokenizer, const uint32_t* ids, size_t count, bool skip_special,
                      SpyreTextBytes* out, SpyreTextBytes* error);

/* The bytes that a token stands for inside a text: maybe part of a character. Fails for an id out of the vocabulary. */
int spyre_text_token_bytes(const SpyreTextTokenizer* tokenizer, uint32_t id, SpyreTextBytes* out,
                           SpyreTextBytes* error);

/* The id of a token as the vocabulary spells it, or -1. */
int spyre_text_token_to_id(const SpyreTextTokenizer* tokenizer, const uint8_t* token, size_t size, int64_t* out,
                           SpyreTextBytes* error);

/* The largest id + 1. */
uint32_t spyre_text_vocab_size(const SpyreTextTokenizer* tokenizer);

/* Ascending. */
int spyre_text_special_ids(const SpyreTextTokenizer* tokenizer, SpyreTextIds* out, SpyreTextBytes* error);

/* ---- decoding token by token ---- */

typedef struct SpyreTextStream SpyreTextStream;

/* A stream keeps its tokenizer alive. */
int spyre_text_stream_new(const SpyreTextTokenizer* tokenizer, bool skip_special, SpyreTextStream** out,
                          SpyreTextBytes* error);
void spyre_text_stream_free(SpyreTextStream* stream);

/* The text that |id| makes certain; what may still change is held. All texts of a stream, joined, are the text of
 * spyre_text_decode. */
int spyre_text_stream_push(SpyreTextStream* stream, uint32_t id, SpyreTextView* out, SpyreTextBytes* error);

/* What is pushed next follows |ids|, a prompt: no token of it is the first of its text. For a stream that is as new. */
int spyre_text_stream_follow(SpyreTextStream* stream, const uint32_t* ids, size_t count, SpyreTextBytes* error);

/* The rest. The stream is as new afterwards. */
int spyre_text_stream_finish(SpyreTextStream* stream, SpyreTextView* out, SpyreTextBytes* error);

/* ---- chat templates ---- */

typedef struct SpyreTextTemplate SpyreTextTemplate;

/* Compiles a template in Hugging Face's dialect of Jinja. |bos| and |eos| are its bos_token and eos_token; empty: not
 * defined. Unsupported: it does not parse (the message has the line). */
int spyre_text_template_new(const uint8_t* source, size_t size, const uint8_t* bos, size_t bos_size, const uint8_t* eos,
                            size_t eos_size, SpyreTextTemplate** out, SpyreTextBytes* error);
void spyre_text_template_free(SpyreTextTemplate* chat_template);

/* Renders with the members of the JSON object |json| as variables, in their order. |mark|: a character that filters
 * leave as it is (escapes of JSON, say), or 0. The message is the text of raise_exception() where that was called. */
int spyre_text_template_render(const SpyreTextTemplate* chat_template, const uint8_t* json, size_t size, uint32_t mark,
                               SpyreTextBytes* out, SpyreTextBytes* error);

#ifdef __cplusplus
}
#endif
