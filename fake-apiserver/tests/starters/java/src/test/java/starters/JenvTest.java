package starters;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.javaoperatorsdk.jenvtest.junit.EnableKubeAPIServer;
import io.javaoperatorsdk.jenvtest.junit.KubeConfig;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import java.util.Map;
import org.junit.jupiter.api.Test;

@EnableKubeAPIServer
class JenvTest {
  @KubeConfig
  static String kubeconfig;

  @Test
  void anObjectIsStored() {
    try (var client = new KubernetesClientBuilder().withConfig(Config.fromKubeconfig(kubeconfig)).build()) {
      var map = new ConfigMapBuilder().withNewMetadata().withName("settings").withNamespace("default").endMetadata()
          .withData(Map.of("key", "value")).build();
      client.resource(map).create();
      assertEquals(Map.of("key", "value"), client.resource(map).get().getData());
    }
  }
}
