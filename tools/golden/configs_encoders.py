"""Cases of encoders, embedders and rerankers (see configs.py)."""

from configs import BASE, BERT

ONE_LABEL = {"id2label": {"0": "relevance"}, "label2id": {"relevance": 0}}
THREE_LABELS = {"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}

MODERNBERT = {
    "architectures": ["ModernBertModel"], "model_type": "modernbert", "hidden_activation": "gelu", "hidden_size": 60,
    "intermediate_size": 92, "num_hidden_layers": 4, "num_attention_heads": 5, "vocab_size": 95,
    "max_position_embeddings": 128, "norm_eps": 1e-5, "norm_bias": False, "attention_bias": False, "mlp_bias": False,
    "global_attn_every_n_layers": 3, "local_attention": 12, "global_rope_theta": 160000.0, "local_rope_theta": 1000.0,
    "pad_token_id": 0, **{k: v for k, v in BASE.items() if k != "pad_token_id"},
}

QWEN3 = {
    "architectures": ["Qwen3Model"], "model_type": "qwen3", "hidden_act": "silu", "hidden_size": 60,
    "intermediate_size": 84, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 14,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "attention_bias": False, "tie_word_embeddings": True, "vocab_size": 97,
    "max_position_embeddings": 128, "torch_dtype": "float32", **BASE,
}

GEMMA3 = {
    "architectures": ["Gemma3TextModel"], "model_type": "gemma3_text", "use_bidirectional_attention": True,
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 56, "intermediate_size": 84, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 20, "query_pre_attn_scalar": 20,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "sliding_window": 12,
    "rms_norm_eps": 1e-6, "rope_theta": 100000.0, "rope_local_base_freq": 1000.0, "attention_bias": False,
    "vocab_size": 97, "max_position_embeddings": 128, "torch_dtype": "float32", **BASE,
}

LLAMA_TWO_WAY = {
    "architectures": ["LlamaBidirectionalModel"], "model_type": "llama_bidirec", "hidden_act": "silu",
    "hidden_size": 60, "intermediate_size": 84, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 14, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "attention_bias": False,
    "mlp_bias": False, "vocab_size": 97, "max_position_embeddings": 128, "torch_dtype": "float32", **BASE,
}

CASES = {
    # Llama whose tokens see each other: one block of them all.
    "llama_bidirec-embedder": {
        "config": LLAMA_TWO_WAY, "reference_type": "llama", "reference_class": "LlamaModel", "also_saved": False,
        "block": lambda config: 64,
        "mutants": [{"rope_theta": 1000.0}, {"rms_norm_eps": 1e-2}],
    },
    "llama_bidirec-biased": {
        "config": {**LLAMA_TWO_WAY, "attention_bias": True, "mlp_bias": True, "num_key_value_heads": 6,
                   "rope_scaling": {"type": "linear", "factor": 2.0}, "num_hidden_layers": 2},
        "reference_type": "llama", "reference_class": "LlamaModel", "also_saved": False,
        "block": lambda config: 64,
        "mutants": [{"rope_scaling": None}, {"rope_theta": 1000.0}],
    },
    "bert-reranker": {
        "config": {**BERT, "architectures": ["BertForSequenceClassification"], **ONE_LABEL},
        "second": 23,
        "mutants": [{"num_attention_heads": 3}, {"hidden_act": "relu"}],
    },
    "bert-labels": {
        "config": {**BERT, "architectures": ["BertForSequenceClassification"], "num_hidden_layers": 1, **THREE_LABELS},
        "mutants": [{"num_attention_heads": 3}, {"hidden_act": "relu"}],
    },
    "xlm-roberta-reranker": {
        "config": {**BERT, "architectures": ["XLMRobertaForSequenceClassification"], "model_type": "xlm-roberta",
                   "layer_norm_eps": 1e-5, "pad_token_id": 1, "type_vocab_size": 1, "max_position_embeddings": 44,
                   **ONE_LABEL},
        "length": 40, "from": 2,
        "mutants": [{"num_attention_heads": 3}, {"hidden_act": "relu"}],
    },
    "modernbert-windows": {
        "config": MODERNBERT,
        "mutants": [{"local_attention": 10}, {"global_attn_every_n_layers": 2}, {"global_rope_theta": 10000.0},
                    {"local_rope_theta": 10000.0}, {"num_attention_heads": 3}],
    },
    "modernbert-biased": {
        "config": {**MODERNBERT, "norm_bias": True, "attention_bias": True, "mlp_bias": True, "num_hidden_layers": 3,
                   "global_attn_every_n_layers": 2, "hidden_activation": "gelu_pytorch_tanh", "norm_eps": 1e-2},
        "mutants": [{"local_attention": 14}, {"norm_eps": 1e-5}],
    },
    "modernbert-reranker": {
        "config": {**MODERNBERT, "architectures": ["ModernBertForSequenceClassification"], "classifier_pooling": "mean",
                   "classifier_bias": True, **ONE_LABEL},
        "mutants": [{"classifier_pooling": "cls"}, {"local_attention": 8}],
    },
    "modernbert-first": {
        "config": {**MODERNBERT, "architectures": ["ModernBertForSequenceClassification"], "classifier_pooling": "cls",
                   "num_hidden_layers": 2, "norm_bias": True, **THREE_LABELS},
        "mutants": [{"classifier_pooling": "mean"}],
    },
    "qwen3-embedder": {
        "config": QWEN3,
        "mutants": [{"rope_theta": 1000.0}, {"rms_norm_eps": 1e-2}],
    },
    "qwen3-classifier": {
        "config": {**QWEN3, "architectures": ["Qwen3ForSequenceClassification"], "pad_token_id": 0, **ONE_LABEL},
        "from": 1,
        "mutants": [{"rope_theta": 1000.0}],
    },
    "gemma3_text-embedder": {
        "config": GEMMA3,
        "mutants": [{"sliding_window": 8}, {"rope_local_base_freq": 100.0}, {"query_pre_attn_scalar": 40}],
    },
}
