"""Whole networks as PyTorch's two exporters write them, with seeded random weights, and what onnxruntime makes of them.

usage: python make.py [--size small|real] [--exporter script|dynamo] FOLDER [NAME..]     (--list: the names)

Each case becomes FOLDER/NAME.EXPORTER/ with model.onnx, input.npz and expected.npz, and input2.npz and expected2.npz of other
lengths where axes are dynamic. Needs torch, torchvision, timm, transformers, onnx, onnxscript, onnxruntime, numpy.
An export that fails is a line on stderr and no folder: it is the exporter's business.
"""

import argparse
import contextlib
import io
import os
import shutil
import sys
import traceback
import warnings

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
warnings.filterwarnings("ignore")

import numpy as np
import onnxruntime as ort
import torch
from torch import nn

# the fused kernel of nn.MultiheadAttention has no ONNX form
torch.backends.mha.set_fastpath_enabled(False)

OPSET = {"script": 17, "dynamo": 18}


class Case:
    """A module; its inputs by name for one or two sets of sizes; axes that are dynamic: {input: {axis: name}}."""

    def __init__(self, module, inputs, other=None, axes=None, outputs=None):
        self.module, self.inputs, self.other = module, inputs, other
        self.axes, self.outputs = axes or {}, outputs


def vary(module):
    """Makes what initialisers leave at 0 or 1 count: norms, biases, layer scales, running statistics."""
    g = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, p in module.named_parameters():
            if p.ndim > 1 and not p.any():
                p.copy_(torch.randn(p.shape, generator=g) * 0.1)
            elif p.ndim <= 1 or name.endswith("gamma"):
                p.copy_(torch.rand(p.shape, generator=g) + 0.5 if name.endswith(("weight", "gamma")) else torch.randn(p.shape, generator=g) * 0.1)
        for name, b in module.named_buffers():
            if name.endswith("running_mean"):
                b.copy_(torch.randn(b.shape, generator=g) * 0.1)
            if name.endswith("running_var"):
                b.copy_(torch.rand(b.shape, generator=g) + 0.5)
    return module.eval()


class Wrap(nn.Module):
    """A model behind a plain signature: tensors in, a tuple of tensors out."""

    def __init__(self, model, call, names):
        super().__init__()
        self.model, self.call = model, call
        # exporters read the names and the number of arguments from the signature
        args = ", ".join(names)
        scope = {}
        exec(f"def forward(self, {args}):\n    return self.call(self.model, {args})", scope)
        self.forward = scope["forward"].__get__(self)


def noise(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def ids(n, *shape, seed=2):
    return torch.randint(0, n, shape, generator=torch.Generator().manual_seed(seed))


def image(module, side, channels=3, batch=True):
    """A network over pictures, its batch dynamic."""
    vary(module)
    inputs = {"x": noise(2, channels, side, side)}
    return Case(module, inputs, {"x": noise(3, channels, side, side, seed=3)} if batch else None, {"x": {0: "batch"}} if batch else {})


def timm_net(name, side, **options):
    import timm

    torch.manual_seed(0)
    return image(timm.create_model(name, pretrained=False, **options), side)


def resnet(real):
    from torchvision.models import resnet as r

    torch.manual_seed(0)
    if real:
        return image(r.resnet50(), 224)
    net = r.ResNet(r.Bottleneck, [1, 1, 1, 1], num_classes=10, width_per_group=4)
    return image(net, 64)


def resnet_tv_basic(real):
    from torchvision.models import resnet as r

    torch.manual_seed(0)
    return image(r.resnet18() if real else r.ResNet(r.BasicBlock, [1, 1, 1, 1], num_classes=10), 224 if real else 64)


def convnext(real):
    return timm_net("convnext_tiny", 224) if real else timm_net("convnext_atto", 64, depths=(1, 1, 1, 1), dims=(8, 16, 24, 32), num_classes=10)


def swin(real):
    if real:
        return timm_net("swin_tiny_patch4_window7_224", 224)
    return timm_net(
        "swin_tiny_patch4_window7_224", 56, img_size=56, depths=(2, 2), embed_dim=16, num_heads=(2, 4), num_classes=10
    )


def swin_tv(real):
    from torchvision.models import swin_transformer as s

    torch.manual_seed(0)
    if real:
        return image(s.swin_v2_t(), 256)
    net = s.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=10, block=s.SwinTransformerBlockV2, downsample_layer=s.PatchMergingV2)
    return image(net, 50)


def vit(real):
    if real:
        return timm_net("vit_small_patch16_224", 224)
    return timm_net("vit_tiny_patch16_224", 48, img_size=48, depth=2, embed_dim=32, num_heads=4, num_classes=10)


def vit_tv(real):
    from torchvision.models import vision_transformer as v

    torch.manual_seed(0)
    return image(v.vit_b_16() if real else v.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=10), 224 if real else 32)


def deit(real):
    if real:
        return timm_net("deit_tiny_distilled_patch16_224", 224)
    return timm_net("deit_tiny_distilled_patch16_224", 48, img_size=48, depth=2, embed_dim=32, num_heads=4, num_classes=10)


def efficientnet(real):
    from torchvision.models import efficientnet as e

    torch.manual_seed(0)
    if real:
        return image(e.efficientnet_b0(), 224)
    block = e.MBConvConfig
    return image(e.EfficientNet([block(1, 3, 1, 8, 8, 1), block(4, 3, 2, 8, 16, 1), block(4, 5, 2, 16, 24, 2)], 0.2, num_classes=10, last_channel=32), 48)


def efficientnet_lite(real):
    if real:
        return timm_net("tf_efficientnet_lite0", 224)
    from timm.models.efficientnet import _gen_efficientnet_lite

    torch.manual_seed(0)
    return image(_gen_efficientnet_lite("tf_efficientnet_lite0", channel_multiplier=0.25, depth_multiplier=0.5, num_classes=10, pad_type="same"), 48)


def efficientnet_v2(real):
    if real:
        return timm_net("efficientnetv2_rw_t", 224)
    from timm.models.efficientnet import _gen_efficientnetv2_s

    torch.manual_seed(0)
    return image(_gen_efficientnetv2_s("efficientnetv2_rw_t", channel_multiplier=0.2, depth_multiplier=0.3, num_classes=10), 48)


def regnet(real):
    from torchvision.models import regnet as r

    torch.manual_seed(0)
    if real:
        return image(r.regnet_y_400mf(), 224)
    params = r.BlockParams.from_init_params(depth=4, w_0=16, w_a=8.0, w_m=2.0, group_width=8, se_ratio=0.25)
    return image(r.RegNet(params, num_classes=10, stem_width=8), 48)


def mobilenet(real):
    from torchvision.models import mobilenetv3 as m

    torch.manual_seed(0)
    if real:
        return image(m.mobilenet_v3_small(), 224)
    return image(m.mobilenet_v3_small(width_mult=0.35, num_classes=10), 48)


def densenet(real):
    from torchvision.models import densenet as d

    torch.manual_seed(0)
    return image(d.densenet121() if real else d.DenseNet(4, (2, 2, 2, 2), 8, num_classes=10), 224 if real else 64)


def segmentation(real):
    from torchvision.models.segmentation import lraspp_mobilenet_v3_large

    torch.manual_seed(0)
    net = lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5)
    names = ["x"]
    wrapped = vary(Wrap(net, lambda m, x: (m(x)["out"],), names))
    side = 320 if real else 64
    return Case(wrapped, {"x": noise(1, 3, side, side)}, None, {})


def hf(cls, config, call, inputs, other=None, axes=None, outputs=None):
    torch.manual_seed(0)
    config._attn_implementation = "sdpa" if getattr(cls, "_supports_sdpa", False) else "eager"
    net = vary(cls(config))
    return Case(Wrap(net, call, list(inputs)), inputs, other, axes, outputs)


BATCH_SEQ = {0: "batch", 1: "seq"}


def bert(real):
    import transformers as t

    config = t.BertConfig() if real else t.BertConfig(vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=32)
    n = config.vocab_size

    def call(m, input_ids, attention_mask, token_type_ids):
        out = m(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        return out.last_hidden_state, out.pooler_output

    def inputs(b, s):
        mask = torch.ones(b, s, dtype=torch.int64)
        mask[-1, s - s // 3 :] = 0
        return {"input_ids": ids(n, b, s), "attention_mask": mask, "token_type_ids": ids(2, b, s)}

    axes = {k: BATCH_SEQ for k in ("input_ids", "attention_mask", "token_type_ids")}
    return hf(t.BertModel, config, call, inputs(2, 9), inputs(3, 14), axes)


def cache_of(past):
    """A cache of [k0, v0, k1, v1, ..]."""
    import transformers as t

    cache = t.DynamicCache()
    for i in range(0, len(past), 2):
        cache.update(past[i], past[i + 1], i // 2)
    return cache


def flat(cache):
    return [x for layer in cache.layers for x in (layer.keys, layer.values)]


def decoder(cls, config, heads, head_dim, layers, past):
    """A language model over tokens; with `past`, of one step after some tokens."""
    n = config.vocab_size

    def call(m, input_ids, attention_mask, *rest):
        cache = cache_of(rest) if past else None
        out = m(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=past)
        return (out.logits, *flat(out.past_key_values)) if past else (out.logits,)

    def inputs(b, s, p):
        mask = torch.ones(b, s + p, dtype=torch.int64)
        mask[-1, :2] = 0
        given = {"input_ids": ids(n, b, s), "attention_mask": mask}
        for i in range(layers if past else 0):
            given[f"past_k{i}"] = noise(b, heads, p, head_dim, seed=10 + i)
            given[f"past_v{i}"] = noise(b, heads, p, head_dim, seed=30 + i)
        return given

    one, two = (inputs(2, 1, 6), inputs(3, 2, 9)) if past else (inputs(2, 8, 0), inputs(3, 11, 0))
    if past:
        # one new token is a case of its own to the exporters: trace with two
        one = inputs(2, 3, 6)
    axes = {"input_ids": BATCH_SEQ, "attention_mask": {0: "batch", 1: "total" if past else "seq"}}
    axes |= {k: {0: "batch", 2: "past"} for k in one if k.startswith("past")}
    return hf(cls, config, call, one, two, axes)


def gpt2(real, past=False):
    import transformers as t

    config = t.GPT2Config() if real else t.GPT2Config(vocab_size=100, n_positions=32, n_embd=32, n_layer=2, n_head=4)
    return decoder(t.GPT2LMHeadModel, config, config.n_head, config.n_embd // config.n_head, config.n_layer, past)


def llama(real, past=False):
    import transformers as t

    config = t.LlamaConfig(vocab_size=100, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
    if real:
        config = t.LlamaConfig(vocab_size=32000, hidden_size=768, intermediate_size=2048, num_hidden_layers=6, num_attention_heads=12, num_key_value_heads=4)
    dim = config.hidden_size // config.num_attention_heads
    return decoder(t.LlamaForCausalLM, config, config.num_key_value_heads, dim, config.num_hidden_layers, past)


def t5_config(t, real):
    return t.T5Config() if real else t.T5Config(vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, relative_attention_num_buckets=8, relative_attention_max_distance=20)


def t5_encoder(real):
    import transformers as t

    config = t5_config(t, real)

    def inputs(b, s):
        mask = torch.ones(b, s, dtype=torch.int64)
        mask[-1, s - 2 :] = 0
        return {"input_ids": ids(config.vocab_size, b, s), "attention_mask": mask}

    call = lambda m, input_ids, attention_mask: (m(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state,)
    return hf(t.T5EncoderModel, config, call, inputs(2, 9), inputs(3, 14), {k: BATCH_SEQ for k in ("input_ids", "attention_mask")})


def t5_decoder(real):
    import transformers as t

    config = t5_config(t, real)

    def call(m, decoder_input_ids, encoder_hidden_states, attention_mask):
        from transformers.modeling_outputs import BaseModelOutput

        hidden = BaseModelOutput(last_hidden_state=encoder_hidden_states)
        out = m(encoder_outputs=hidden, attention_mask=attention_mask, decoder_input_ids=decoder_input_ids, use_cache=False)
        return (out.logits,)

    def inputs(b, s, e):
        mask = torch.ones(b, e, dtype=torch.int64)
        mask[-1, e - 2 :] = 0
        return {
            "decoder_input_ids": ids(config.vocab_size, b, s),
            "encoder_hidden_states": noise(b, e, config.d_model),
            "attention_mask": mask,
        }

    axes = {"decoder_input_ids": BATCH_SEQ, "encoder_hidden_states": {0: "batch", 1: "enc"}, "attention_mask": {0: "batch", 1: "enc"}}
    return hf(t.T5ForConditionalGeneration, config, call, inputs(2, 5, 9), inputs(3, 7, 12), axes)


def whisper_config(t, real):
    if real:
        return t.WhisperConfig(vocab_size=51864, d_model=384, encoder_layers=4, decoder_layers=4, encoder_attention_heads=6, decoder_attention_heads=6, encoder_ffn_dim=1536, decoder_ffn_dim=1536)
    return t.WhisperConfig(
        vocab_size=100, num_mel_bins=8, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=20, max_target_positions=16, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip


def whisper_encoder(real):
    import transformers as t
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = whisper_config(t, real)
    frames = config.max_source_positions * 2
    call = lambda m, input_features: (m(input_features).last_hidden_state,)
    one, two = ({"input_features": noise(b, config.num_mel_bins, frames)} for b in (1, 2))
    return hf(WhisperEncoder, config, call, one, two, {"input_features": {0: "batch"}})


def whisper_decoder(real):
    import transformers as t
    from transformers.models.whisper.modeling_whisper import WhisperDecoder

    config = whisper_config(t, real)
    call = lambda m, input_ids, encoder_hidden_states: (
        m(input_ids=input_ids, encoder_hidden_states=encoder_hidden_states, use_cache=False).last_hidden_state,
    )
    inputs = lambda b, s: {
        "input_ids": ids(config.vocab_size, b, s),
        "encoder_hidden_states": noise(b, config.max_source_positions, config.d_model),
    }
    return hf(WhisperDecoder, config, call, inputs(2, 5), inputs(3, 7), {"input_ids": BATCH_SEQ, "encoder_hidden_states": {0: "batch"}})


def clip(real):
    import transformers as t

    config = t.CLIPConfig()
    if not real:
        text = dict(vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=16, projection_dim=16, eos_token_id=99)
        vision = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8, projection_dim=16)
        config = t.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16)
    n, side = config.text_config.vocab_size, config.vision_config.image_size

    def call(m, input_ids, pixel_values, attention_mask):
        out = m(input_ids=input_ids, pixel_values=pixel_values, attention_mask=attention_mask)
        return out.logits_per_image, out.text_embeds, out.image_embeds

    def inputs(b, s, images):
        tokens = ids(n - 1, b, s)
        tokens[:, -1] = config.text_config.eos_token_id
        return {"input_ids": tokens, "pixel_values": noise(images, 3, side, side), "attention_mask": torch.ones(b, s, dtype=torch.int64)}

    axes = {"input_ids": BATCH_SEQ, "pixel_values": {0: "images"}, "attention_mask": BATCH_SEQ}
    return hf(t.CLIPModel, config, call, inputs(2, 7, 3), inputs(3, 9, 2), axes)


def mamba(real):
    import transformers as t

    config = t.MambaConfig(vocab_size=100, hidden_size=24, state_size=4, num_hidden_layers=2, expand=2)
    if real:
        config = t.MambaConfig(vocab_size=50280, hidden_size=768, num_hidden_layers=4)
    call = lambda m, input_ids: (m(input_ids=input_ids, use_cache=False).logits,)
    seq = 64 if real else 8
    # the scan over time is unrolled by both exporters: its length is fixed
    one, two = ({"input_ids": ids(config.vocab_size, b, seq)} for b in (2, 3))
    return hf(t.MambaForCausalLM, config, call, one, two, {"input_ids": {0: "batch"}})


CASES = {
    "resnet_bottleneck": resnet,
    "resnet_basic": resnet_tv_basic,
    "convnext": convnext,
    "swin": swin,
    "swin_v2": swin_tv,
    "vit": vit,
    "vit_tv": vit_tv,
    "deit": deit,
    "efficientnet": efficientnet,
    "efficientnet_lite": efficientnet_lite,
    "efficientnet_v2": efficientnet_v2,
    "regnet": regnet,
    "mobilenet_v3": mobilenet,
    "densenet": densenet,
    "lraspp": segmentation,
    "bert": bert,
    "gpt2": gpt2,
    "gpt2_past": lambda real: gpt2(real, past=True),
    "llama": llama,
    "llama_past": lambda real: llama(real, past=True),
    "t5_encoder": t5_encoder,
    "t5_decoder": t5_decoder,
    "whisper_encoder": whisper_encoder,
    "whisper_decoder": whisper_decoder,
    "clip": clip,
    "mamba": mamba,
}


def export(case, exporter, path):
    args = tuple(case.inputs.values())
    names = list(case.inputs)
    with torch.no_grad():
        outputs = case.module(*args)
    outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    out_names = case.outputs or [f"out{i}" for i in range(len(outputs))]
    options = dict(input_names=names, output_names=out_names, opset_version=OPSET[exporter])
    if exporter == "script":
        torch.onnx.export(case.module, args, path, dynamo=False, dynamic_axes=case.axes or None, **options)
    else:
        if case.axes:
            # the other sizes are what keeps a dimension from being taken for a constant
            dims = {}
            dim = lambda name: dims.setdefault(name, torch.export.Dim.DYNAMIC)
            options["dynamic_shapes"] = [{a: dim(n) for a, n in case.axes[k].items()} if k in case.axes else None for k in names]
            if any(p.kind == p.VAR_POSITIONAL for p in __import__("inspect").signature(case.module.forward).parameters.values()):
                options["dynamic_shapes"] = (tuple(options["dynamic_shapes"]),)
        torch.onnx.export(case.module, args, path, dynamo=True, external_data=False, **options)


def reference(path, inputs):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    known = {i.name for i in session.get_inputs()}
    feeds = {k: v.numpy() for k, v in inputs.items() if k in known}
    return feeds, dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))


def make(folder, name, exporter, real):
    out = os.path.join(folder, f"{name}.{exporter}")
    last = os.path.join(out, "made")
    if os.path.exists(last) and os.path.getmtime(last) > os.path.getmtime(__file__):
        return None
    try:
        case = CASES[name](real)
    except Exception as e:
        return f"not built: {type(e).__name__}: {e}"
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    path = os.path.join(out, "model.onnx")
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), torch.no_grad():
            export(case, exporter, path)
        for suffix, inputs in (("", case.inputs), ("2", case.other)):
            if inputs is None:
                continue
            try:
                feeds, outputs = reference(path, inputs)
            except Exception as e:
                if not suffix:
                    raise
                # the exporter has fixed a length in spite of the axes given
                print(f"{name}.{exporter}: onnxruntime refuses other lengths: {str(e).splitlines()[0][:160]}", file=sys.stderr)
                continue
            np.savez(os.path.join(out, f"input{suffix}.npz"), **feeds)
            np.savez(os.path.join(out, f"expected{suffix}.npz"), **outputs)
    except Exception as e:
        shutil.rmtree(out)
        if os.environ.get("ZOO_TRACE"):
            traceback.print_exc()
        return f"{type(e).__name__}: {(str(e).strip().splitlines() or [''])[0][:200]}"
    open(last, "w").close()
    return None


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folder", nargs="?")
    p.add_argument("names", nargs="*")
    p.add_argument("--size", choices=["small", "real"], default="small")
    p.add_argument("--exporter", choices=list(OPSET))
    p.add_argument("--list", action="store_true")
    a = p.parse_args()
    if a.list or not a.folder:
        print("\n".join(CASES))
        return
    failed = 0
    for name in a.names or CASES:
        for exporter in [a.exporter] if a.exporter else OPSET:
            why = make(a.folder, name, exporter, a.size == "real")
            failed += why is not None
            print(f"{name}.{exporter}: {why or 'made'}", file=sys.stderr, flush=True)
    print(f"{failed} exports failed", file=sys.stderr)


if __name__ == "__main__":
    main()
