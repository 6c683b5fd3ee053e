package app

import (
	"fmt"
	"sync"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// processGates returns the feature gates of the process, which packages of stock read as a global variable. No other
// function of the program refers to that variable: Settings has the gates, and parts of the agent get plain values. The
// gates include those of logging. It must be called before the first flag is defined, because the names of gates are
// part of the help text.
var processGates = sync.OnceValues(func() (featuregate.MutableVersionedFeatureGate, error) {
	gates := utilfeature.DefaultMutableFeatureGate
	if err := logsapi.AddFeatureGates(gates); err != nil {
		return nil, fmt.Errorf("register logging feature gates: %w", err)
	}
	return gates, nil
})

// setGates applies values to gates. It checks them first, because gates keep the valid part of invalid values.
func setGates(gates featuregate.MutableVersionedFeatureGate, values map[string]bool) error {
	if err := checkGates(gates, values); err != nil {
		return err
	}
	if err := gates.SetFromMap(values); err != nil {
		return gateError(err)
	}
	return nil
}

// checkGates applies values to a copy of gates.
func checkGates(gates featuregate.MutableVersionedFeatureGate, values map[string]bool) error {
	if err := gates.DeepCopy().SetFromMap(values); err != nil {
		return gateError(err)
	}
	return nil
}

func gateError(err error) error { return fmt.Errorf("featureGates (--feature-gates): %w", err) }
