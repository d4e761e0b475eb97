/* The NVML stub with two GPUs, processes that hold memory, modes and links; DOCTOR_NVML names what is wrong:
 * `held PID`, `unexplained`, `exclusive`, `apart`, `mig`, or nothing. */
#define nvmlDeviceGetMemoryInfo stub_memory
#define nvmlDeviceGetMigMode stub_mig
#define nvmlDeviceGetUUID stub_uuid
#define nvmlDeviceGetCount_v2 stub_count
#define nvmlDeviceGetHandleByIndex_v2 stub_handle
#define nvmlDeviceGetNvLinkState stub_link
#define nvmlDeviceGetP2PStatus stub_p2p
#include "nvml_stub/nvml.c"
#undef nvmlDeviceGetMemoryInfo
#undef nvmlDeviceGetMigMode
#undef nvmlDeviceGetUUID
#undef nvmlDeviceGetCount_v2
#undef nvmlDeviceGetHandleByIndex_v2
#undef nvmlDeviceGetNvLinkState
#undef nvmlDeviceGetP2PStatus

typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } nvmlProcessInfo_t;

static int wrong(const char *what) {
    const char *value = getenv("DOCTOR_NVML");
    return value && !strncmp(value, what, strlen(what));
}
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { *handle = (void *)(long)(index + 1); return 0; }
nvmlReturn_t nvmlDeviceGetUUID(void *gpu, char *to, unsigned size) {
    return put(to, size, gpu == (void *)1L ? "GPU-00000000-1111-2222-3333-444444444444" : "GPU-00000000-1111-2222-3333-555555555555");
}
nvmlReturn_t nvmlDeviceGetMigMode(void *gpu, unsigned *now, unsigned *next) {
    (void)gpu;
    *now = *next = wrong("mig");
    return 0;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo(void *gpu, nvmlMemory_t *memory) {
    unsigned long long used = (gpu == (void *)1L && (wrong("held") || wrong("unexplained"))) ? 70ULL << 30 : 600ULL << 20;
    memory->total = 143771ULL << 20;
    memory->used = used;
    memory->free = memory->total - used;
    return 0;
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, unsigned *count, nvmlProcessInfo_t *infos) {
    if (gpu != (void *)1L || !wrong("held")) { *count = 0; return 0; }
    if (*count < 1 || !infos) { *count = 1; return 7; }
    *count = 1;
    infos[0].pid = (unsigned)atoi(getenv("DOCTOR_NVML") + 5);
    infos[0].used = 70ULL << 30;
    infos[0].gi = infos[0].ci = 0;
    return 0;
}
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(void *gpu, unsigned *count, nvmlProcessInfo_t *infos) {
    (void)gpu; (void)infos;
    *count = 0;
    return 0;
}
nvmlReturn_t nvmlDeviceGetComputeMode(void *gpu, int *mode) { (void)gpu; *mode = wrong("exclusive") ? 3 : 0; return 0; }
nvmlReturn_t nvmlDeviceGetNvLinkState(void *gpu, unsigned link, int *active) { (void)gpu; (void)link; *active = 0; return 0; }
nvmlReturn_t nvmlDeviceGetP2PStatus(void *one, void *other, int index, int *status) {
    (void)one; (void)other; (void)index;
    *status = wrong("apart") ? 3 : 0;
    return 0;
}
