/* Calls a libjpeg that was loaded at run time. libjpeg reports an error by calling `error_exit`, which must not return;
 * here it jumps back to the function of this file that was called. Such a jump leaves only frames of C, because all
 * callbacks are in this file, and that is what libjpeg.txt ("Error handling") asks of applications. No jump and no
 * unwinding ever crosses a frame of Rust. */
#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Enters libjpeg: on an error the function returns 0, with the message in `image.error`. */
#define ENTER(jpeg) do { if (_setjmp((jpeg)->back)) return 0; } while (0)

static void fail(struct decoder *decoder, const char *reason) {
    struct stoker_jpeg *jpeg = (struct stoker_jpeg *)decoder;
    strncpy(jpeg->image.error, reason, MESSAGE_BYTES - 1);
    _longjmp(jpeg->back, 1);
}

static void error_exit(struct decoder *decoder) {
    char text[MESSAGE_BYTES] = {0};
    decoder->errors->format_message(decoder, text);
    fail(decoder, text);
}

/* Warnings (level -1) are about damaged pixels, which decoders of JPEG repair; other levels are traces. */
static void emit_message(struct decoder *decoder, int level) { decoder->errors->num_warnings += level < 0; }

static void ignore(struct decoder *decoder) { (void)decoder; }

static int fill_input_buffer(struct decoder *decoder) {
    fail(decoder, "the JPEG file ends before its image does");
    return 0;
}

static void skip_input_data(struct decoder *decoder, long bytes) {
    struct source *source = decoder->source;
    if (bytes <= 0) return;
    if ((size_t)bytes > source->bytes_left) fill_input_buffer(decoder);
    source->next += bytes;
    source->bytes_left -= (size_t)bytes;
}

static void monitor(struct decoder *decoder) {
    if (decoder->scan > ((struct stoker_jpeg *)decoder)->scans_max) fail(decoder, "the JPEG file has too many scans");
}

/* Returns a decoder, or NULL if there is no memory. `functions` has as many pointers as `struct library`. */
struct stoker_jpeg *stoker_jpeg_new(void (*const *functions)(void), int scans_max) {
    struct stoker_jpeg *jpeg = calloc(1, sizeof *jpeg);
    if (!jpeg) return NULL;
    memcpy(&jpeg->library, functions, sizeof jpeg->library);
    jpeg->scans_max = scans_max;
    return jpeg;
}

struct image *stoker_jpeg_image(struct stoker_jpeg *jpeg) { return &jpeg->image; }

/* Releases all that belongs to the file. */
void stoker_jpeg_close(struct stoker_jpeg *jpeg) {
    if (jpeg->is_created && !_setjmp(jpeg->back)) jpeg->library.destroy(&jpeg->decoder);
    jpeg->is_created = 0;
}

void stoker_jpeg_free(struct stoker_jpeg *jpeg) {
    stoker_jpeg_close(jpeg);
    free(jpeg);
}

/* Reads the header of a file, which must live until `stoker_jpeg_close`. Returns 1, or 0 on an error. */
int stoker_jpeg_open(struct stoker_jpeg *jpeg, const unsigned char *file, size_t bytes) {
    struct decoder *decoder = &jpeg->decoder;
    stoker_jpeg_close(jpeg);
    memset(&jpeg->image, 0, sizeof jpeg->image);
    decoder->errors = jpeg->library.std_error(&jpeg->errors);
    jpeg->errors.error_exit = error_exit;
    jpeg->errors.emit_message = emit_message;
    jpeg->errors.output_message = ignore;
    ENTER(jpeg);
    jpeg->library.create(decoder, ABI, sizeof *decoder);
    jpeg->is_created = 1;
    jpeg->source =
        (struct source){file, bytes, ignore, fill_input_buffer, skip_input_data, jpeg->library.resync, ignore};
    jpeg->progress.monitor = monitor;
    decoder->source = &jpeg->source;
    decoder->progress = &jpeg->progress;
    jpeg->library.read_header(decoder, 1);
    jpeg->image.header_bytes = bytes - jpeg->source.bytes_left;
    jpeg->image.width = decoder->width;
    jpeg->image.height = decoder->height;
    jpeg->image.num_components = (unsigned)decoder->num_components;
    jpeg->image.color_space = (unsigned)decoder->color_space;
    jpeg->image.precision = (unsigned)decoder->precision;
    jpeg->image.has_many_scans = jpeg->library.has_multiple_scans(decoder) != 0;
    return 1;
}

/* Starts decoding at 1/denominator of the size. Of each row, `width` columns from `left` are decoded, and some more:
 * `out_left` and `out_width` tell which. Returns 1, or 0 on an error. */
int stoker_jpeg_start(struct stoker_jpeg *jpeg, int color_space, unsigned denominator, unsigned left, unsigned width) {
    struct decoder *decoder = &jpeg->decoder;
    ENTER(jpeg);
    decoder->out_color_space = color_space;
    decoder->scale_num = 1;
    decoder->scale_denom = denominator;
    jpeg->library.start(decoder);
    jpeg->image.out_left = left;
    if (left || width != decoder->out_width) jpeg->library.crop(decoder, &jpeg->image.out_left, &width);
    jpeg->image.out_width = decoder->out_width;
    jpeg->image.out_height = decoder->out_height;
    jpeg->image.out_components = (unsigned)decoder->out_components;
    return 1;
}

/* Reads `num_rows` rows from row `top` into `pixels`, which has as many rows of `row_bytes`. The image has these rows.
 * Returns 1, or 0 on an error. */
int stoker_jpeg_read(
    struct stoker_jpeg *jpeg, unsigned top, unsigned num_rows, unsigned char *pixels, size_t row_bytes) {
    struct decoder *decoder = &jpeg->decoder;
    unsigned char *rows[16];
    ENTER(jpeg);
    if (top && jpeg->library.skip_rows(decoder, top) != top) fail(decoder, "the decoder skipped fewer rows");
    while (decoder->out_row - top < num_rows) {
        unsigned done = decoder->out_row - top, left = num_rows - done, count = left < 16 ? left : 16;
        for (unsigned row = 0; row < count; row++) rows[row] = pixels + (done + row) * row_bytes;
        if (!jpeg->library.read_rows(decoder, rows, count)) fail(decoder, "the decoder gave no rows");
    }
    return 1;
}

/* Returns the path of the file that a function was loaded from, or NULL. */
const char *stoker_jpeg_path(void (*function)(void)) {
    Dl_info found;
    return dladdr((void *)function, &found) ? found.dli_fname : NULL;
}
