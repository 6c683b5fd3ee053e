package pressureconfig

import (
	"strconv"
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	configHash = gauge("plimsoll_pressure_config_hash",
		"The first 48 bits of the SHA-256 of the pressure configuration in force; 0 for the defaults without a file.")
	lastLoadFailed = gauge("plimsoll_pressure_config_last_load_failed",
		"1 if the last attempt to load the pressure configuration failed and an older one is in force, else 0.")
	lastLoadSuccess = gauge("plimsoll_pressure_config_last_load_success_timestamp_seconds",
		"Time at which the pressure configuration in force was loaded, in seconds since 1970.")

	registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(configHash, lastLoadFailed, lastLoadSuccess) })
)

func gauge(name, help string) *metrics.Gauge {
	return metrics.NewGauge(&metrics.GaugeOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA})
}

// hashDigits is the number of hexadecimal digits of the hash in the metric: a float64 is exact for 48 bits.
const hashDigits = 12

func recordSuccess(l Loaded, now time.Time) {
	value := uint64(0)
	if len(l.Hash) >= hashDigits {
		value, _ = strconv.ParseUint(l.Hash[:hashDigits], 16, 64)
	}
	configHash.Set(float64(value))
	lastLoadFailed.Set(0)
	lastLoadSuccess.Set(float64(now.Unix()))
}

func recordFailure() { lastLoadFailed.Set(1) }
