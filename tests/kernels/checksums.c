/* Compares the checksums that this machine's instructions make with those of the portable code. */
#include <stdio.h>

#include "crc_impl.h"
#include "crc_shift.h"

int main(void) {
    static uint8_t data[20000];
    int n_wrong = 0, level = kl_crc_setup(KL_VPCLMUL_512);
    for (int i = 0; i < 20000; i++) data[i] = (uint8_t)(i * 7 + i / 251);
    for (int n = 0; n < 19990; n += n < 700 ? 1 : 97)
        for (int start = 0; start < 3; start++) {
            n_wrong += kl_crc32c_best(data + start, n) != kl_crc32c_portable(data + start, n);
            n_wrong += kl_crc32_best(data + start, n) != kl_crc32_portable(data + start, n);
        }
    kl_gf_setup();
    for (int n = 0; n < 700; n++) {
        uint32_t whole = kl_crc32c_best(data, 300 + n), tail = kl_crc32c_best(data + 300, n);
        n_wrong += whole != (kl_gf_shift(kl_crc32c_best(data, 300), n, 0) ^ tail);
        whole = kl_crc32_best(data, 300 + n), tail = kl_crc32_best(data + 300, n);
        n_wrong += whole != (kl_gf_shift(kl_crc32_best(data, 300), n, 1) ^ tail);
    }
    /* by many bytes: in one step, as in two */
    for (uint32_t n = 1, i = 0; i < 64; i++, n = n * 2654435761u + i) {
        uint32_t part = n / 3, crc = 0x9E3779B9u * (i + 1);
        for (int which = 0; which < 2; which++)
            n_wrong += kl_gf_shift(crc, n, which) != kl_gf_shift(kl_gf_shift(crc, part, which), n - part, which);
    }
    printf("level %d, %d wrong\n", level, n_wrong);
    return n_wrong != 0;
}
