package app

import (
	"errors"
	"fmt"
	"slices"

	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/component-base/cli/flag"
	nodeutil "k8s.io/component-helpers/node/util"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	netutils "k8s.io/utils/net"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
)

// checks find values that pass stock's validation and make its start fail later, with a message that does not name the
// setting. Each check rejects only what would make the start fail. The order is that of the messages.
var checks = []func(*Settings) error{
	checkAddresses,
	checkCloudProvider,
	checkSyncFrequency,
	checkNodeIP,
	checkTLS,
	checkAuthentication,
	checkAuthorization,
	checkLockFile,
	checkResourceManagers,
	checkReservations,
	checkEviction,
	checkContainerLogs,
	checkCredentialProviders,
	checkKubeconfig,
	checkSwap,
}

func checkAddresses(s *Settings) error {
	if (s.Config.EnableServer || s.Config.ReadOnlyPort > 0) && netutils.ParseIPSloppy(s.Config.Address) == nil {
		return fmt.Errorf("address (--address) %q is not an IP address", s.Config.Address)
	}
	return nil
}

func checkCloudProvider(s *Settings) error {
	if provider := s.Flags.CloudProvider; provider != "" && !cloudprovider.IsExternal(provider) {
		return fmt.Errorf(
			"--cloud-provider %q: cloud providers are no part of the kubelet any more; allowed are \"external\" and nothing",
			provider)
	}
	return nil
}

func checkSyncFrequency(s *Settings) error {
	if s.Config.SyncFrequency.Duration <= 0 {
		return fmt.Errorf("syncFrequency (--sync-frequency) %v must be greater than 0", s.Config.SyncFrequency.Duration)
	}
	return nil
}

func checkNodeIP(s *Settings) error {
	if _, _, err := nodeutil.ParseNodeIPArgument(s.Flags.NodeIP, s.Flags.CloudProvider); err != nil {
		return fmt.Errorf("--node-ip %q: %w", s.Flags.NodeIP, err)
	}
	return nil
}

func checkTLS(s *Settings) error {
	var errs []error
	if _, err := flag.TLSCipherSuites(s.Config.TLSCipherSuites); err != nil {
		errs = append(errs, fmt.Errorf("tlsCipherSuites (--tls-cipher-suites) %v: %w", s.Config.TLSCipherSuites, err))
	}
	if _, err := flag.TLSVersion(s.Config.TLSMinVersion); err != nil {
		errs = append(errs, fmt.Errorf("tlsMinVersion (--tls-min-version) %q: %w", s.Config.TLSMinVersion, err))
	}
	if _, err := flag.TLSCurvePreferences(s.Config.TLSCurvePreferences); err != nil {
		errs = append(errs,
			fmt.Errorf("tlsCurvePreferences (--tls-curve-preferences) %v: %w", s.Config.TLSCurvePreferences, err))
	}
	return errors.Join(errs...)
}

func checkAuthentication(s *Settings) error {
	if s.Config.Authentication.Webhook.Enabled && s.standalone() {
		return errors.New("authentication.webhook.enabled (--authentication-token-webhook) true needs --kubeconfig: " +
			"tokens are reviewed by the API server")
	}
	return nil
}

func checkAuthorization(s *Settings) error {
	const name = "authorization.mode (--authorization-mode)"
	allowed := []kubeletconfig.KubeletAuthorizationMode{
		kubeletconfig.KubeletAuthorizationModeAlwaysAllow, kubeletconfig.KubeletAuthorizationModeWebhook,
	}
	mode := s.Config.Authorization.Mode
	switch {
	case !slices.Contains(allowed, mode):
		return fmt.Errorf("%s %q must be one of: %q", name, mode, allowed)
	case mode == kubeletconfig.KubeletAuthorizationModeWebhook && s.standalone():
		return fmt.Errorf("%s %q needs --kubeconfig: access is reviewed by the API server", name, mode)
	}
	return nil
}

func checkLockFile(s *Settings) error {
	if s.Flags.ExitOnLockContention && s.Flags.LockFilePath == "" {
		return errors.New("--exit-on-lock-contention true needs --lock-file")
	}
	return nil
}

func checkReservations(s *Settings) error {
	var errs []error
	if _, err := parseReservation(s.Config.KubeReserved); err != nil {
		errs = append(errs, fmt.Errorf("kubeReserved (--kube-reserved): %w", err))
	}
	if _, err := parseReservation(s.Config.SystemReserved); err != nil {
		errs = append(errs, fmt.Errorf("systemReserved (--system-reserved): %w", err))
	}
	if _, err := cm.ParseQOSReserved(s.Config.QOSReserved); err != nil {
		errs = append(errs, fmt.Errorf("qosReserved (--qos-reserved): %w", err))
	}
	return errors.Join(errs...)
}

// standalone is true without an API server.
func (s *Settings) standalone() bool { return s.Flags.KubeConfig == "" }

// checkEviction checks every threshold, grace period and minimum reclaim.
func checkEviction(s *Settings) error {
	_, err := settings.ParseThresholds(settings.ThresholdConfig{
		AllocatableEnforced: s.Config.EnforceNodeAllocatable,
		Hard:                s.Config.EvictionHard,
		Soft:                s.Config.EvictionSoft,
		SoftGracePeriods:    s.Config.EvictionSoftGracePeriod,
		MinimumReclaim:      s.Config.EvictionMinimumReclaim,
	})
	return err
}
