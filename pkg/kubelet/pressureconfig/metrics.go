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
		"The first 48 bits of the SHA-256 of the pressure configuration that holds; 0 for the defaults that hold without "+
			"a file.")
	lastLoadFailed = gauge("plimsoll_pressure_config_last_load_failed",
		"1 when the last attempt to load the pressure configuration failed, so that an older one holds, else 0.")
	lastLoadSuccess = gauge("plimsoll_pressure_config_last_load_success_timestamp_seconds",
		"When the pressure configuration that holds was loaded, in seconds since 1970.")

	registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(configHash, lastLoadFailed, lastLoadSuccess) })
)

func gauge(name, help string) *metrics.Gauge {
	return metrics.NewGauge(&metrics.GaugeOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA})
}

// hashDigits is how much of a hash a metric can hold: 48 bits fit into a floating point number.
const hashDigits = 12

func measureSuccess(l Loaded, now time.Time) {
	value := uint64(0)
	if len(l.Hash) >= hashDigits {
		value, _ = strconv.ParseUint(l.Hash[:hashDigits], 16, 64)
	}
	configHash.Set(float64(value))
	lastLoadFailed.Set(0)
	lastLoadSuccess.Set(float64(now.Unix()))
}

func measureFailure() { lastLoadFailed.Set(1) }
