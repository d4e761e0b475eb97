/* A libcuda.so.1 with one H200, whose behaviour STUB_CUDA names: what cuInit returns (0 by default), `hang` or
 * `crash`. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuInit(unsigned flags) {
    const char *mode = getenv("STUB_CUDA");
    (void)flags;
    if (mode && !strcmp(mode, "hang")) for (;;) pause();
    if (mode && !strcmp(mode, "crash")) raise(SIGSEGV);
    return mode ? atoi(mode) : 0;
}
int cuGetErrorName(int code, const char **name) {
    *name = code == 802 ? "CUDA_ERROR_SYSTEM_NOT_READY" : NULL;
    return *name ? 0 : 1;
}
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char *to, int size, int device) { (void)device; snprintf(to, size, "NVIDIA H200"); return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == 75 ? 9 : 0;
    return 0;
}
/* The UUID of the first GPU of the NVML stub: GPU-00000000-1111-2222-3333-444444444444. */
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    static const unsigned char own[16] = {0, 0, 0, 0, 0x11, 0x11, 0x22, 0x22, 0x33, 0x33, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44};
    (void)device;
    memcpy(uuid, own, sizeof own);
    return 0;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = 143771ULL << 20; return 0; }
