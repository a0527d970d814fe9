//! Splits pixels into one plane per channel.
#![expect(unsafe_code, reason = "instructions of newer processors, see the safety comment")]

/// The number of pixels that are split together, which fill a few vector registers.
const BLOCK: usize = 64;

/// Splits pixels of three channels into one plane per channel. All four slices must have the same length.
pub fn split_planes(pixels: &[[u8; 3]], planes: [&mut [u8]; 3]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: `split_with_avx2` requires only AVX2, and the condition above checks that the processor supports
        // AVX2.
        unsafe { split_with_avx2(pixels, planes) };
        return;
    }
    split(pixels, planes);
}

/// Splits pixels, compiled for AVX2. Without AVX2 compilers copy byte by byte.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn split_with_avx2(pixels: &[[u8; 3]], planes: [&mut [u8]; 3]) {
    split(pixels, planes);
}

#[inline(always)]
fn split(pixels: &[[u8; 3]], [red, green, blue]: [&mut [u8]; 3]) {
    let (blocks, rest) = pixels.as_chunks::<BLOCK>();
    let (reds, red_rest) = red.as_chunks_mut::<BLOCK>();
    let (greens, green_rest) = green.as_chunks_mut::<BLOCK>();
    let (blues, blue_rest) = blue.as_chunks_mut::<BLOCK>();
    for (((block, red), green), blue) in blocks.iter().zip(reds).zip(greens).zip(blues) {
        // The loop goes by index, because compilers vectorize this form.
        for place in 0..BLOCK {
            red[place] = block[place][0];
            green[place] = block[place][1];
            blue[place] = block[place][2];
        }
    }
    for (((pixel, red), green), blue) in rest.iter().zip(red_rest).zip(green_rest).zip(blue_rest) {
        [*red, *green, *blue] = *pixel;
    }
}
