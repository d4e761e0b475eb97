/* A libnvidia-ml.so.1 with one H200, whose behaviour STUB_NVML names: a return code of nvmlInit (0 by default),
 * `hang`, `crash`, `lost` (it initialises, and its second GPU does not answer), or `two` (two GPUs behind NVSwitches with
 * P2P, as a real pair of H200s answered). */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int nvmlReturn_t;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } nvmlPciInfo_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;

static const char *mode(void) { const char *value = getenv("STUB_NVML"); return value ? value : "0"; }
static nvmlReturn_t put(char *to, unsigned size, const char *text) { snprintf(to, size, "%s", text); return 0; }

nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (!strcmp(mode(), "hang")) for (;;) pause();
    if (!strcmp(mode(), "crash")) raise(SIGSEGV);
    return atoi(mode());
}
const char *nvmlErrorString(nvmlReturn_t code) {
    return code == 18 ? "Driver/library version mismatch" : code == 999 ? "Unknown Error" : "GPU is lost";
}
nvmlReturn_t nvmlSystemGetDriverVersion(char *to, unsigned size) { return put(to, size, "580.159.04"); }
nvmlReturn_t nvmlSystemGetNVMLVersion(char *to, unsigned size) { return put(to, size, "13.580.159.04"); }
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return 0; }
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) { *count = strcmp(mode(), "lost") && strcmp(mode(), "two") ? 1 : 2; return 0; }
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    *handle = (void *)(1L + index);
    return index && strcmp(mode(), "two") ? 15 : 0;
}
nvmlReturn_t nvmlDeviceGetNvLinkState(void *gpu, unsigned link, int *up) { (void)gpu; *up = link < 18; return 0; }
nvmlReturn_t nvmlDeviceGetP2PStatus(void *one, void *other, int what, int *status) {
    (void)one;
    (void)other;
    const char *wanted = getenv(what ? "STUB_NVLINK" : "STUB_P2P");
    *status = wanted ? atoi(wanted) : 0;
    return 0;
}
nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(void *one, void *other, int *level) {
    (void)one;
    (void)other;
    *level = 50;
    return 0;
}
nvmlReturn_t nvmlDeviceGetName(void *gpu, char *to, unsigned size) { (void)gpu; return put(to, size, "NVIDIA H200"); }
nvmlReturn_t nvmlDeviceGetUUID(void *gpu, char *to, unsigned size) {
    (void)gpu;
    return put(to, size, "GPU-00000000-1111-2222-3333-444444444444");
}
nvmlReturn_t nvmlDeviceGetCudaComputeCapability(void *gpu, int *major, int *minor) {
    (void)gpu;
    *major = 9;
    *minor = 0;
    return 0;
}
nvmlReturn_t nvmlDeviceGetMigMode(void *gpu, unsigned *now, unsigned *next) { (void)gpu; *now = *next = 0; return 0; }
nvmlReturn_t nvmlDeviceGetPciInfo_v3(void *gpu, nvmlPciInfo_t *info) {
    (void)gpu;
    return put(info->bus_id, sizeof info->bus_id, "00000000:00:06.0");
}
nvmlReturn_t nvmlDeviceGetMemoryInfo(void *gpu, nvmlMemory_t *memory) {
    (void)gpu;
    memory->total = 143771ULL << 20;
    memory->free = 143156ULL << 20;
    memory->used = 0;
    return 0;
}
