"""Architectures of `transformers`, tiny, built from configurations: one training step of each.

`python architectures.py SHIM NAME ..` takes a step of each of them plainly, and then within a budget, in
copies of this process. It prints a line of JSON for each.
"""

import functools
import json
import sys

import torch
from everyday import adamw, attempt, budget_of, freeze, measured, prepare, words
from torch import nn
from training import Case

SHARE = 0.6
"""Of what comes and goes."""
VOCABULARY = 99
SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64, "head_dim": 8,
    "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "use_cache": False, "d_model": 32, "d_ff": 64, "d_kv": 8, "num_heads": 4, "decoder_start_token_id": 0,
    "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_experts": 4, "num_local_experts": 4,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "embedding_size": 32,
    "state_size": 8, "image_size": 64, "patch_size": 8, "num_labels": 5, "attention_window": 16,
}  # fmt: skip
"""Of all; what a configuration has no use for does no harm."""
STAGES = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}
HEADS = {"num_attention_heads": [1, 1, 2, 2], "decoder_hidden_size": 16}
OF_PICTURES = {
    "poolformer": STAGES, "pvt": {**STAGES, **HEADS}, "segformer": {**STAGES, **HEADS},
    "resnet": {**STAGES, "embedding_size": 8, "layer_type": "basic"},
}  # fmt: skip
OF_SOUNDS = {"conv_dim": (16,) * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}

AFTER = """ afmoe apertus arcee aria_text bert-generation biogpt bitnet bloom cohere cohere2 cohere2_moe
cpmant ctrl cwm deepseek_v4 diffllama doge dory ernie4_5 ernie4_5_moe exaone exaone4 exaone_moe
falcon_mamba flex_olmo fuyu gemma gemma2 gemma3_text glm glm4 glm4_moe gpt-sw3 gpt2 gpt_bigcode gpt_neox
gpt_neox_japanese gpt_oss granite granitemoe granitemoeshared helium hunyuan_v1_dense hunyuan_v1_moe
hyperclovax internlm3 jais2 jamba jetmoe lfm2 llama llama4_text mamba megatron-bert minimax minimax_m2
ministral mistral mixtral modernbert-decoder moshi mpt nanochat nemotron nemotron_h olmo olmo2 olmo3
olmo_hybrid olmoe openai-gpt opt persimmon phi phi3 phimoe qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next
recurrent_gemma rwkv seed_oss smollm3 stablelm starcoder2 trocr vaultgemma xglm xlstm
"""
"""Language models that say what comes next."""
BETWEEN = """
albert bert big_bird camembert convbert data2vec-text deberta deberta-v2 distilbert electra ernie esm eurobert
flaubert fnet ibert layoutlm longformer mobilebert modernbert mpnet mra nystromformer rembert roberta
roberta-prelayernorm roformer squeezebert tapas xlm xlm-roberta xlm-roberta-xl yoso
"""
"""Those that fill gaps."""
TWO_PARTS = """ bart bigbird_pegasus blenderbot fsmt led longt5 m2m_100 marian mbart mvp pegasus plbart
switch_transformers umt5
"""
"""Encoders with decoders."""
PICTURES = "dinov2 poolformer pvt resnet segformer vit"
"""Those that classify images."""
SOUNDS = "data2vec-audio hubert unispeech wavlm"
"""Those that write down what is said."""
TASKS = {
    "AutoModelForCausalLM": AFTER,
    "AutoModelForMaskedLM": BETWEEN,
    "AutoModelForSeq2SeqLM": TWO_PARTS,
    "AutoModelForImageClassification": PICTURES,
    "AutoModelForCTC": SOUNDS,
}
NAMES = {name: task for task, names in TASKS.items() for name in names.split()}


def make(name: str) -> nn.Module:
    import transformers

    more = OF_SOUNDS if NAMES[name] == "AutoModelForCTC" else OF_PICTURES.get(name, {})
    sizes = {**SIZES, **more}
    config = transformers.AutoConfig.for_model(name, **sizes)
    return getattr(transformers, NAMES[name]).from_config(config)


def data(task: str) -> tuple[torch.Tensor, ...]:
    if task == "AutoModelForImageClassification":
        return torch.randn(8, 3, 64, 64), torch.randint(5, (8,))
    if task == "AutoModelForCTC":
        return torch.randn(4, 8000), words(4, 6, 30)
    tokens = words(8, 48, VOCABULARY)
    return tokens, tokens.clone()


def loss(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return model(**{model.main_input_name: inputs}, labels=labels).loss


def main() -> None:
    import transformers

    transformers.logging.set_verbosity_error()
    shim = prepare(sys.argv[1])
    # What all of them need is imported once.
    for name in ("llama", "bart", "vit"):
        make(name)
    freeze()
    for name in sys.argv[2:]:
        case: Case = adamw(functools.partial(make, name), functools.partial(data, NAMES[name]), loss, steps=1)
        plain, needs = measured(case, shim)
        if "raised" in plain:
            told = {"plain": plain["raised"]}
        else:
            told = attempt(case, shim, "enable", budget_of(needs, SHARE), plain)
        print(json.dumps({"name": name, "peak": needs["peak"], **told}), flush=True)


if __name__ == "__main__":
    main()
