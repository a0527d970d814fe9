/* The memory layout of libjpeg's public objects in version 6.2 of its binary interface, written from libjpeg.txt ("The
 * JPEG library from the application's view"). Only members that the shim uses have names of their own; the others keep
 * their places. libjpeg compares the size of `struct decoder` with its own before it uses any member. */
#ifndef STOKER_ABI62_H
#define STOKER_ABI62_H

#include <stddef.h>

enum { ABI = 62, MESSAGE_BYTES = 200 };

struct decoder;

/* jpeg_error_mgr */
struct errors {
    void (*error_exit)(struct decoder *);
    void (*emit_message)(struct decoder *, int level);
    void (*output_message)(struct decoder *);
    void (*format_message)(struct decoder *, char *text);
    void (*reset_error_mgr)(struct decoder *);
    int message;
    union { int numbers[8]; char text[80]; } parameters;
    int trace_level;
    long num_warnings;
    const char *const *messages;
    int last_message;
    const char *const *more_messages;
    int more_first, more_last;
};

/* jpeg_source_mgr */
struct source {
    const unsigned char *next;
    size_t bytes_left;
    void (*init_source)(struct decoder *);
    int (*fill_input_buffer)(struct decoder *);
    void (*skip_input_data)(struct decoder *, long bytes);
    int (*resync_to_restart)(struct decoder *, int desired);
    void (*term_source)(struct decoder *);
};

/* jpeg_progress_mgr */
struct progress {
    void (*monitor)(struct decoder *);
    long counter, limit;
    int completed, total;
};

/* jpeg_decompress_struct */
struct decoder {
    struct errors *errors;
    void *memory;
    struct progress *progress;
    void *client_data;
    int is_decompressor, state;
    struct source *source;
    unsigned width, height;
    int num_components, color_space, out_color_space;
    unsigned scale_num, scale_denom;
    double gamma;
    int is_buffered, is_raw, dct_method, is_upsampling_fancy, is_smoothing;
    int is_quantizing, dither, is_two_pass, num_colors, quantizers[3];
    unsigned out_width, out_height;
    int out_color_components, out_components, rows_at_once, actual_colors;
    void *color_map;
    unsigned out_row;
    int scan;
    unsigned in_row_of_mcus;
    int out_scan;
    unsigned out_row_of_mcus;
    void *coefficient_bits, *tables[12];
    int precision;
    void *components;
    int is_progressive, is_arithmetic;
    unsigned char conditioning[48];
    unsigned restart_interval;
    int saw_jfif;
    unsigned char jfif[3];
    unsigned short density[2];
    int saw_adobe;
    unsigned char adobe_transform;
    int is_ccir601;
    void *markers;
    int sampling[3];
    unsigned num_rows_of_mcus;
    void *range_limit;
    int components_in_scan;
    void *scan_components[4];
    unsigned mcus_per_row, rows_of_mcus_in_scan;
    int blocks_in_mcu, membership[10], progression[4], unread_marker;
    void *modules[11];
};

_Static_assert(sizeof(void *) != 8 || sizeof(struct decoder) == 632, "the size of jpeg_decompress_struct");
_Static_assert(sizeof(void *) != 8 || sizeof(struct errors) == 168, "the size of jpeg_error_mgr");

#endif
