/* A libnvidia-ml for tests: three devices whose answers are planted. It has what the watch asks for and no more. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The order is that of SENSORS in conftest.py. */
enum {
    ENERGY, POWER_INSTANT, POWER, SM_CLOCK, MEMORY_CLOCK, TEMPERATURE, BUSY, MEMORY_USED, REASONS, OLD_REASONS,
    PROCESSES, NAME, UUID, POWER_LIMIT, SENSORS
};
enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
enum { DEVICES = 3, MOST_PROCESSES = 4 };

typedef struct {
    const char *uuid, *name;
    unsigned long long value[SENSORS];
    int code[SENSORS];
    unsigned pids[MOST_PROCESSES], processes;
} gpu_t;

typedef struct { unsigned gpu, memory; } utilization_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned pid; unsigned long long memory; unsigned instance, compute_instance; } process_t;
typedef struct {
    uint32_t field, scope;
    int64_t timestamp, latency;
    int type, code;
    union { double d; unsigned u; unsigned long long ull; } value;
} field_t;

static gpu_t gpus[DEVICES];
static int driver;           /* what every call answers: 0 while the driver lives */
static volatile int hanging; /* whether calls do not return */
static unsigned calls;

void fake_reset(void) {
    memset(gpus, 0, sizeof gpus);
    gpus[0].uuid = "GPU-aaaaaaaa-0000-0000-0000-000000000000";
    gpus[0].name = "Paper 100";
    gpus[1].uuid = "GPU-bbbbbbbb-1111-1111-1111-111111111111";
    gpus[1].name = "Paper 200";
    gpus[2].uuid = "MIG-cccccccc-2222-2222-2222-222222222222";
    gpus[2].name = "Paper 200 MIG 1g";
    driver = hanging = 0;
    calls = 0;
}
void fake_plant(int index, int sensor, unsigned long long value) { gpus[index].value[sensor] = value; }
void fake_fail(int index, int sensor, int code) { gpus[index].code[sensor] = code; }
void fake_processes(int index, unsigned count, const unsigned *pids) {
    gpus[index].processes = count;
    memcpy(gpus[index].pids, pids, count * sizeof *pids);
}
void fake_driver(int code) { driver = code; }
void fake_hang(int whether) { hanging = whether; }
unsigned fake_calls(void) { return calls; }

static int answer(const gpu_t *gpu, int sensor) {
    calls++;
    while (hanging) usleep(1000);
    return driver ? driver : gpu->code[sensor];
}
static int number(const gpu_t *gpu, int sensor, unsigned *out) {
    *out = (unsigned)gpu->value[sensor];
    return answer(gpu, sensor);
}
static int wide(const gpu_t *gpu, int sensor, unsigned long long *out) {
    *out = gpu->value[sensor];
    return answer(gpu, sensor);
}
static int text(const gpu_t *gpu, int sensor, const char *from, char *out, unsigned size) {
    snprintf(out, size, "%s", from);
    return answer(gpu, sensor);
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return driver; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) { snprintf(out, size, "999.1"); return driver; }
int nvmlDeviceGetHandleByUUID(const char *uuid, gpu_t **out) {
    if (driver) return driver;
    for (int i = 0; i < DEVICES; i++)
        if (!strcmp(uuid, gpus[i].uuid)) { *out = &gpus[i]; return SUCCESS; }
    return NOT_FOUND;
}
int nvmlDeviceGetCount_v2(unsigned *out) { *out = DEVICES; return driver; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, gpu_t **out) {
    if (index >= DEVICES) return INVALID_ARGUMENT;
    *out = &gpus[index];
    return driver;
}
int nvmlDeviceGetName(gpu_t *gpu, char *out, unsigned size) { return text(gpu, NAME, gpu->name, out, size); }
int nvmlDeviceGetUUID(gpu_t *gpu, char *out, unsigned size) { return text(gpu, UUID, gpu->uuid, out, size); }
int nvmlDeviceGetEnforcedPowerLimit(gpu_t *gpu, unsigned *out) { return number(gpu, POWER_LIMIT, out); }
int nvmlDeviceGetTotalEnergyConsumption(gpu_t *gpu, unsigned long long *out) { return wide(gpu, ENERGY, out); }
int nvmlDeviceGetPowerUsage(gpu_t *gpu, unsigned *out) { return number(gpu, POWER, out); }
int nvmlDeviceGetClockInfo(gpu_t *gpu, int type, unsigned *out) {
    if (type != 1 && type != 2) return INVALID_ARGUMENT;
    return number(gpu, type == 1 ? SM_CLOCK : MEMORY_CLOCK, out);
}
int nvmlDeviceGetTemperature(gpu_t *gpu, int sensor, unsigned *out) {
    return sensor ? INVALID_ARGUMENT : number(gpu, TEMPERATURE, out);
}
int nvmlDeviceGetUtilizationRates(gpu_t *gpu, utilization_t *out) {
    *out = (utilization_t){(unsigned)gpu->value[BUSY], 0};
    return answer(gpu, BUSY);
}
int nvmlDeviceGetMemoryInfo(gpu_t *gpu, memory_t *out) {
    *out = (memory_t){0, 0, gpu->value[MEMORY_USED]};
    return answer(gpu, MEMORY_USED);
}
int nvmlDeviceGetCurrentClocksEventReasons(gpu_t *gpu, unsigned long long *out) { return wide(gpu, REASONS, out); }
int nvmlDeviceGetCurrentClocksThrottleReasons(gpu_t *gpu, unsigned long long *out) {
    return wide(gpu, OLD_REASONS, out);
}
int nvmlDeviceGetFieldValues(gpu_t *gpu, int count, field_t *fields) {
    for (int i = 0; i < count; i++) {
        fields[i].code = fields[i].field == 186 ? gpu->code[POWER_INSTANT] : INVALID_ARGUMENT;
        fields[i].value.u = (unsigned)gpu->value[POWER_INSTANT];
    }
    calls++;
    while (hanging) usleep(1000);
    return driver;
}
int nvmlDeviceGetComputeRunningProcesses_v3(gpu_t *gpu, unsigned *count, process_t *out) {
    unsigned room = *count;
    int code = answer(gpu, PROCESSES);
    if (code) return code;
    *count = gpu->processes;
    if (room < gpu->processes) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < gpu->processes; i++) out[i] = (process_t){gpu->pids[i], 1 << 20, 0, 0};
    return SUCCESS;
}
