/* The Rust libraries behind one C interface: Hugging Face tokenizers, Jinja chat templates (minijinja),
 * and grammars (llguidance).
 * Strings cross as pointer and length, never NUL-terminated. What a function takes is borrowed for the call;
 * what it returns in a mlxcel_text or mlxcel_ids is owned by the caller and freed with the function named
 * there. Thread: objects are immutable and may be used from any thread at once; a mlxcel_stream or a
 * mlxcel_matcher from one at a time.
 * Failure: false or NULL, and a sentence in *error (which must be freed). No panic crosses. */
#ifndef MLXCEL_BRIDGE_H
#define MLXCEL_BRIDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mlxcel_str {
  const char* data;
  size_t size;
} mlxcel_str; /* borrowed */
typedef struct mlxcel_text {
  char* data;
  size_t size;
} mlxcel_text; /* owned: mlxcel_text_free */
typedef struct mlxcel_ids {
  int32_t* data;
  size_t size;
} mlxcel_ids; /* owned: mlxcel_ids_free */

void mlxcel_text_free(mlxcel_text text);
void mlxcel_ids_free(mlxcel_ids ids);

/* ---- tokenizers ---- */

typedef struct mlxcel_tokenizer mlxcel_tokenizer;
typedef struct mlxcel_stream mlxcel_stream;

/* A vocabulary as GGUF metadata holds it. Flags: -1 where the file says nothing. Ids: -1 likewise. */
typedef struct mlxcel_vocabulary {
  mlxcel_str model; /* gpt2, gemma4, llama, t5, bert */
  mlxcel_str pre;   /* tokenizer.ggml.pre, for gpt2 */
  const mlxcel_str* tokens;
  size_t token_count;
  const float* scores;      /* token_count of them, or NULL */
  const int32_t* types;     /* 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte; or NULL */
  const mlxcel_str* merges; /* "left right" */
  size_t merge_count;
  mlxcel_str charsmap; /* SentencePiece's normalisation table, or empty */
  int64_t bos, eos, unk, sep, cls;
  const int64_t* special; /* further ids that are special whatever their type says */
  size_t special_count;
  int32_t add_bos, add_eos, add_space_prefix, remove_extra_whitespaces, space_as_suffix, lowercase,
      strip_accents;
} mlxcel_vocabulary;

mlxcel_tokenizer* mlxcel_tokenizer_from_json(mlxcel_str json, mlxcel_text* error);
mlxcel_tokenizer* mlxcel_tokenizer_from_vocabulary(const mlxcel_vocabulary* vocabulary, mlxcel_text* error);
void mlxcel_tokenizer_free(mlxcel_tokenizer* tokenizer);

/* Before the tokenizer is shared: removes the spaces that some word tokenizers leave before punctuation. */
void mlxcel_tokenizer_set_clean_up(mlxcel_tokenizer* tokenizer, bool clean_up);

/* Bytes that are not UTF-8 are read as U+FFFD. */
bool mlxcel_tokenizer_encode(const mlxcel_tokenizer* tokenizer, mlxcel_str text, bool add_special,
                             bool parse_special, mlxcel_ids* ids, mlxcel_text* error);
/* Ids outside the vocabulary stand for nothing. */
bool mlxcel_tokenizer_decode(const mlxcel_tokenizer* tokenizer, const int32_t* ids, size_t count,
                             bool skip_special, mlxcel_text* text, mlxcel_text* error);
/* One past the largest id. */
int32_t mlxcel_tokenizer_size(const mlxcel_tokenizer* tokenizer);
int32_t mlxcel_tokenizer_id(const mlxcel_tokenizer* tokenizer, mlxcel_str token); /* -1: unknown */
bool mlxcel_tokenizer_is_special(const mlxcel_tokenizer* tokenizer, int32_t id);
mlxcel_text mlxcel_tokenizer_token(const mlxcel_tokenizer* tokenizer, int32_t id);       /* as spelled */
mlxcel_text mlxcel_tokenizer_token_bytes(const mlxcel_tokenizer* tokenizer, int32_t id); /* as it reads */
/* What a GGUF vocabulary resolved to; -1 for tokenizers from JSON. */
int32_t mlxcel_tokenizer_bos(const mlxcel_tokenizer* tokenizer);
int32_t mlxcel_tokenizer_eos(const mlxcel_tokenizer* tokenizer);

/* Decodes token by token; the pieces join to what decode() says of all ids. Keeps the tokenizer alive. */
mlxcel_stream* mlxcel_stream_new(const mlxcel_tokenizer* tokenizer, bool skip_special);
void mlxcel_stream_free(mlxcel_stream* stream);
/* *piece is borrowed until the stream's next call. */
bool mlxcel_stream_push(mlxcel_stream* stream, int32_t id, mlxcel_str* piece, mlxcel_text* error);
bool mlxcel_stream_finish(mlxcel_stream* stream, mlxcel_str* piece, mlxcel_text* error);

/* ---- chat templates ---- */

typedef struct mlxcel_template mlxcel_template;

typedef enum mlxcel_template_fault {
  MLXCEL_TEMPLATE_BROKEN = 1,  /* it failed: the sentence gives its line and what went wrong */
  MLXCEL_TEMPLATE_REFUSED = 2, /* raise_exception: the sentence is the template's own */
} mlxcel_template_fault;

mlxcel_template* mlxcel_template_new(mlxcel_str source, mlxcel_text* error);
void mlxcel_template_free(mlxcel_template* chat);
typedef struct mlxcel_template_input {
  mlxcel_str messages;  /* a JSON array of objects */
  mlxcel_str tools;     /* a JSON array, or empty */
  mlxcel_str variables; /* a JSON object of further globals, or empty */
  bool add_generation_prompt;
  bool continue_final_message; /* the text ends where the last message ends */
} mlxcel_template_input;

/* `fuel`: steps it may take. */
bool mlxcel_template_render(const mlxcel_template* chat, const mlxcel_template_input* input, uint64_t fuel,
                            mlxcel_text* text, mlxcel_template_fault* fault, mlxcel_text* error);

/* ---- grammars ---- */

typedef struct mlxcel_grammar_tables mlxcel_grammar_tables; /* a vocabulary */
typedef struct mlxcel_grammar mlxcel_grammar;               /* compiled */
typedef struct mlxcel_matcher mlxcel_matcher;               /* one sequence's place in it */

typedef enum mlxcel_grammar_kind {
  MLXCEL_GRAMMAR_JSON_SCHEMA = 0,
  MLXCEL_GRAMMAR_LARK = 1,
  MLXCEL_GRAMMAR_REGEX = 2, /* anchored at both ends */
} mlxcel_grammar_kind;

/* The bytes of every id; special ones never match text. Some hundred milliseconds for large vocabularies. */
mlxcel_grammar_tables* mlxcel_grammar_tables_new(const mlxcel_str* tokens, const bool* special, size_t count,
                                                 const uint32_t* eos, size_t eos_count, mlxcel_text* error);
void mlxcel_grammar_tables_free(mlxcel_grammar_tables* tables);
mlxcel_grammar* mlxcel_grammar_new(const mlxcel_grammar_tables* tables, mlxcel_grammar_kind kind,
                                   mlxcel_str text, mlxcel_text* error);
void mlxcel_grammar_free(mlxcel_grammar* grammar);

mlxcel_matcher* mlxcel_matcher_new(const mlxcel_grammar* grammar, mlxcel_text* error);
void mlxcel_matcher_free(mlxcel_matcher* matcher);
/* Bit t of word t / 32: token t may come next; end tokens where the text may end. `count`: (tokens + 31)
 * / 32. */
bool mlxcel_matcher_mask(mlxcel_matcher* matcher, uint32_t* words, size_t count, mlxcel_text* error);
bool mlxcel_matcher_accept(mlxcel_matcher* matcher, uint32_t token, mlxcel_text* error);
/* Bytes instead of a token. *fits false: the grammar does not go on like that, and its place stays. */
bool mlxcel_matcher_accept_text(mlxcel_matcher* matcher, mlxcel_str text, bool* fits, mlxcel_text* error);
/* How many of these tokens it would take one after another; its place stays. */
bool mlxcel_matcher_would_take(mlxcel_matcher* matcher, const uint32_t* tokens, size_t count, size_t* taken,
                               mlxcel_text* error);
/* Nothing can follow. */
bool mlxcel_matcher_complete(const mlxcel_matcher* matcher);

#ifdef __cplusplus
}
#endif
#endif
