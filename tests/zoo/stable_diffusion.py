"""What diffusers and transformers make of the networks of native/examples/stable_diffusion, recorded for tests/it/stable_diffusion.rs.

usage: python stable_diffusion.py      writes tests/fixtures/stable_diffusion/{sd,sdxl}.npz

Needs torch, diffusers, transformers and numpy. Weights and inputs are noise that names give, as in native/examples/noise/mod.rs. The networks have
the blocks of Stable Diffusion 1 and XL with fewer and narrower layers.
"""

import os

import numpy as np
import torch
from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel

from mlperf import given, labels, value

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "../fixtures/stable_diffusion")
STEPS = 3
GUIDANCE = 7.5
SIDE = 16
WORDS = 8
VOCABULARY = 50
WIDTH = 32


def fill(net, prefix):
    for name, p in net.named_parameters():
        p.data.copy_(value(prefix + name, tuple(p.shape)))
    return net.eval()



def record(name, **arrays):
    os.makedirs(OUT, exist_ok=True)
    arrays = {k: v.detach().numpy().astype(np.float32) for k, v in arrays.items()}
    for k, v in arrays.items():
        assert np.isfinite(v).all()
        print(f"{name} {k}: {v.shape}, largest {np.abs(v).max():.4f}")
    np.savez(os.path.join(OUT, f"{name}.npz"), **arrays)


def sd():
    text = fill(
        CLIPTextModel(
            CLIPTextConfig(
                vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=4 * WIDTH, num_hidden_layers=2, num_attention_heads=4,
                max_position_embeddings=WORDS, hidden_act="quick_gelu", eos_token_id=2,
            )
        ),
        "text_encoder.",
    )
    unet = fill(
        UNet2DConditionModel(
            sample_size=SIDE, block_out_channels=(32, 64, 96, 96), layers_per_block=2, cross_attention_dim=WIDTH,
            attention_head_dim=4, norm_num_groups=8,
        ),
        "unet.",
    )
    vae = fill(
        AutoencoderKL(
            block_out_channels=(16, 16, 32, 32), layers_per_block=2, norm_num_groups=8, latent_channels=4,
            down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
        ),
        "vae.",
    )
    schedule = DDIMScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", clip_sample=False, set_alpha_to_one=False, steps_offset=1
    )
    schedule.set_timesteps(STEPS)
    # the first row is the empty text
    hidden = text(labels("words", VOCABULARY, 2, WORDS)).last_hidden_state
    latents, first = given("latents", 1, 4, SIDE, SIDE), None
    for t in schedule.timesteps:
        both = unet(latents.repeat(2, 1, 1, 1), t, encoder_hidden_states=hidden).sample
        first = both if first is None else first
        without, with_text = both.chunk(2)
        latents = schedule.step(without + GUIDANCE * (with_text - without), t, latents, eta=0.0).prev_sample
    picture = vae.decode(latents / 0.18215).sample
    record("sd", text=hidden, noise=first, latents=latents, picture=picture.reshape(-1)[::37])


def sdxl():
    unet = fill(
        UNet2DConditionModel(
            sample_size=SIDE, block_out_channels=(32, 64, 96), layers_per_block=2, cross_attention_dim=WIDTH, attention_head_dim=(2, 4, 6),
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
            transformer_layers_per_block=(1, 2, 3), use_linear_projection=True, norm_num_groups=8,
            addition_embed_type="text_time", addition_time_embed_dim=8, projection_class_embeddings_input_dim=8 * 6 + 16,
        ),
        "unet.",
    )
    # height and width, the crop's corner, height and width that are wanted
    sizes = torch.tensor([[1024.0, 768.0, 0.0, 16.0, 1024.0, 1024.0]] * 2)
    out = unet(
        given("latents", 2, 4, SIDE, SIDE), torch.tensor(481), encoder_hidden_states=given("words", 2, WORDS, WIDTH),
        added_cond_kwargs={"text_embeds": given("pooled", 2, 16), "time_ids": sizes},
    ).sample
    record("sdxl", noise=out)


if __name__ == "__main__":
    torch.manual_seed(0)
    with torch.no_grad():
        sd()
        sdxl()
