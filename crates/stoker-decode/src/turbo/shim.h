/* The objects of shim.c. */
#ifndef STOKER_SHIM_H
#define STOKER_SHIM_H

#include "abi62.h"

#include <setjmp.h>

/* The functions of the library, in the order of SYMBOLS in library.rs. */
struct library {
    struct errors *(*std_error)(struct errors *);
    void (*create)(struct decoder *, int version, size_t bytes);
    void (*destroy)(struct decoder *);
    int (*read_header)(struct decoder *, int require_image);
    int (*has_multiple_scans)(struct decoder *);
    int (*start)(struct decoder *);
    void (*crop)(struct decoder *, unsigned *left, unsigned *width);
    unsigned (*skip_rows)(struct decoder *, unsigned num_rows);
    unsigned (*read_rows)(struct decoder *, unsigned char **rows, unsigned num_rows);
    int (*resync)(struct decoder *, int desired);
};

/* What Rust reads; the same layout as Image in ffi.rs. */
struct image {
    size_t header_bytes;
    unsigned width, height, num_components, color_space, precision, has_many_scans;
    unsigned out_left, out_width, out_height, out_components;
    char error[MESSAGE_BYTES];
};

/* One thread's decoder. `decoder` comes first, so that callbacks find the rest. */
struct stoker_jpeg {
    struct decoder decoder;
    struct errors errors;
    struct source source;
    struct progress progress;
    struct library library;
    struct image image;
    int is_created, scans_max;
    jmp_buf back;
};

#endif
