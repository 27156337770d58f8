"""Where the regions of the clouds are: public facts, for clients that draw a map."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Region:
    """A region of a cloud, and its coordinates."""

    csp: str
    name: str
    display: str
    latitude: float
    longitude: float

    @property
    def connection(self) -> str:
        return f"{self.csp}-{self.name}"


# cloud, region, latitude, longitude, name
_TABLE = """
aws   us-east-1             38.95  -77.45 US East (N. Virginia)
aws   us-east-2             39.96  -83.00 US East (Ohio)
aws   us-west-1             37.35 -121.96 US West (N. California)
aws   us-west-2             45.84 -119.70 US West (Oregon)
aws   ca-central-1          45.50  -73.60 Canada (Montreal)
aws   sa-east-1            -23.55  -46.63 South America (Sao Paulo)
aws   eu-central-1          50.11    8.68 Europe (Frankfurt)
aws   eu-west-1             53.35   -6.26 Europe (Ireland)
aws   eu-west-2             51.51   -0.13 Europe (London)
aws   eu-west-3             48.86    2.35 Europe (Paris)
aws   eu-north-1            59.33   18.07 Europe (Stockholm)
aws   eu-south-1            45.46    9.19 Europe (Milan)
aws   ap-northeast-1        35.68  139.69 Asia Pacific (Tokyo)
aws   ap-northeast-2        37.57  126.98 Asia Pacific (Seoul)
aws   ap-northeast-3        34.69  135.50 Asia Pacific (Osaka)
aws   ap-southeast-1         1.35  103.82 Asia Pacific (Singapore)
aws   ap-southeast-2       -33.87  151.21 Asia Pacific (Sydney)
aws   ap-south-1            19.08   72.88 Asia Pacific (Mumbai)
aws   me-south-1            26.07   50.55 Middle East (Bahrain)
aws   af-south-1           -33.92   18.42 Africa (Cape Town)
azure eastus                37.37  -79.82 East US (Virginia)
azure westus2               47.23 -119.85 West US 2 (Washington)
azure canadacentral         43.65  -79.38 Canada Central (Toronto)
azure brazilsouth          -23.55  -46.63 Brazil South (Sao Paulo)
azure northeurope           53.35   -6.26 North Europe (Ireland)
azure westeurope            52.37    4.90 West Europe (Netherlands)
azure germanywestcentral    50.11    8.68 Germany West (Frankfurt)
azure uksouth               51.51   -0.13 UK South (London)
azure francecentral         48.86    2.35 France Central (Paris)
azure koreacentral          37.57  126.98 Korea Central (Seoul)
azure japaneast             35.68  139.77 Japan East (Tokyo)
azure southeastasia          1.28  103.83 Southeast Asia (Singapore)
azure australiaeast        -33.86  151.21 Australia East (Sydney)
azure centralindia          18.58   73.92 Central India (Pune)
gcp   us-central1           41.26  -95.86 Iowa
gcp   us-east1              33.20  -80.01 South Carolina
gcp   us-west1              45.60 -121.18 Oregon
gcp   southamerica-east1   -23.55  -46.63 Sao Paulo
gcp   europe-west1          50.45    3.82 Belgium
gcp   europe-west2          51.51   -0.13 London
gcp   europe-west3          50.11    8.68 Frankfurt
gcp   europe-west4          53.44    6.84 Netherlands
gcp   europe-north1         60.57   27.19 Finland
gcp   asia-northeast1       35.69  139.69 Tokyo
gcp   asia-northeast3       37.57  126.98 Seoul
gcp   asia-east1            24.05  120.52 Taiwan
gcp   asia-southeast1        1.35  103.82 Singapore
gcp   asia-south1           19.08   72.88 Mumbai
gcp   australia-southeast1 -33.87  151.21 Sydney
"""


def _parse_region_row(row: str) -> Region:
    csp, name, latitude, longitude, display = row.split(maxsplit=4)
    return Region(csp, name, display, float(latitude), float(longitude))


REGIONS: tuple[Region, ...] = tuple(_parse_region_row(row) for row in _TABLE.strip().splitlines())
REGION_OF_PLACE = {(region.csp, region.name): region for region in REGIONS}
REGION_OF_CONNECTION = {region.connection: region for region in REGIONS}


def find_region(csp: str, name: str) -> Region:
    """Returns a region; one that is not in the table is drawn where the meridian meets the equator."""
    return REGION_OF_PLACE.get((csp, name), Region(csp, name, f"{csp} {name}", 0.0, 0.0))
